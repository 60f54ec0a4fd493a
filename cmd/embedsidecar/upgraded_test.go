package main

import (
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP2_PgUpgrade: pg_upgrade makes another server, which the sidecar reports. After an adopt it goes on, and only the
// changed row is embedded again. From PostgreSQL 17 on pg_upgrade keeps slots, but refuses a slot with pending changes.
// Ours always has some, because its own position is stored in a row.
func TestP2_PgUpgrade(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from   int
		before string // what the documentation says to do before
		slots  int
	}{
		"before 17": {15, "", 0},
		"dropped":   {17, "SELECT pg_drop_replication_slot($1)", 0},
		"kept":      {17, "SELECT pg_replication_slot_advance($1, pg_current_wal_flush_lsn())", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const to = 18
			for _, major := range []int{c.from, to} {
				if _, found, err := testenv.FindServer(t.Context(), major); err != nil || found != major {
					t.Logf("PostgreSQL %d is not there (%v): nothing is tried", major, err)
					return
				}
			}
			old := testenv.Own(t, testenv.Options{Major: c.from})
			s := newStage(t, 50, testenv.On(old))
			work := []string{"run", "--once", "--table", "docs", "--columns", "title,body", "--into-table", "docs_embedding"}
			s.run(0, work...)
			paid := s.state("public.docs").Tokens
			if c.before != "" {
				s.db.MustExecSuper(c.before, s.slot)
			}
			if err := old.Stop(testenv.Fast); err != nil {
				t.Fatal(err)
			}
			server, err := old.Upgrade(t.Context(), to)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := server.Close(); err != nil {
					t.Error(err)
				}
			})
			begin := time.Now()
			s.db.Move(server)
			s.as(testenv.Owner)
			slots := `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1`
			if n := testenv.Value[int](s.db, slots, s.slot); n != c.slots {
				t.Errorf("%d slots after the upgrade, want %d", n, c.slots)
			}
			s.db.MustExec(`UPDATE docs SET body = 'changed since' WHERE id = 7`)
			s.becomes("public.docs", health.Copied, "this server is not the one that was set up", "embedsidecar init --adopt")
			s.run(0, "init", "--adopt", "--table", "docs", "--columns", "title,body", "--into-table", "docs_embedding")
			s.run(0, work...)
			t.Logf("recovery %s", time.Since(begin).Round(time.Millisecond))
			stdout, _ := s.run(0, "status", "-o", "json")
			p := decoded[report.Status](t, stdout).Pipelines[0]
			if n := p.Tokens - paid; n != 4 {
				t.Errorf("%d tokens were paid for again, want those of the row that changed", n)
			}
			s.run(0, "verify", "--deep", "50")
			if n := testenv.Value[int](s.db, slots, s.slot); n != 1 {
				t.Errorf("%d slots in the end", n)
			}
		})
	}
}
