package sidecar_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// standbyOf makes a standby of a database's server, both of which run when it returns. From PostgreSQL 17 on it keeps
// copies of slots.
func standbyOf(t *testing.T, db *testenv.Database, major int) *testenv.Server {
	t.Helper()
	primary := db.Server
	db.MustExecSuper(`SELECT pg_create_physical_replication_slot('second', true)`)
	if err := primary.Stop(testenv.Fast); err != nil {
		t.Fatal(err)
	}
	standby, err := primary.Copy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := standby.Follow(primary, "second", "second"); err != nil {
		t.Fatal(err)
	}
	if major >= 17 {
		if err := standby.Configure(map[string]string{"sync_replication_slots": "on"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []*testenv.Server{primary, standby} {
		if err := s.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	db.Pool.Reset()
	db.Super().Reset()
	return standby
}

// looksOnly: on a standby the views can be read and what would be done is told; what would change something is refused,
// and told where it can be done.
func looksOnly(t *testing.T, there *pgx.Conn, end string) {
	t.Helper()
	for sql, want := range map[string]string{
		"pause('docs')": "25006", "resume()": "25006", "retry_failed()": "25006", "requeue('docs', '{1}')": "25006",
		"cancel('docs', '{1}')": "25006", "discard_dead('docs')": "25006", "reembed('docs')": "25006",
		"backfill('docs')":            "25006",
		"set_priority('docs', 'low')": "25006", "notify_changes(true)": "25006", "wait_for()": "55000",
		"resume('docs', '1 h')": "25006", "prioritise('docs', 'high')": "25006",
		"prioritise('docs', 'high', dry_run => true)": "",
		"pause('docs', dry_run => true)":              "", "retry_failed(dry_run => true)": "", "backlog()": "",
		"explain('docs', '1')":     "",
		"caught_up('" + end + "')": "",
	} {
		_, err := there.Exec(t.Context(), "SELECT embedsidecar."+sql)
		pg, _ := err.(*pgconn.PgError) //nolint:errorlint // as the server has sent it
		if want == "" && err != nil || want != "" && (pg == nil || pg.Code != want || !strings.Contains(pg.Hint, "on the primary")) {
			t.Errorf("%s on a standby: %v, want SQLSTATE %q", sql, err, want)
		}
	}
	_, err := there.Exec(t.Context(), "CALL embedsidecar.drain()")
	if pg, ok := err.(*pgconn.PgError); !ok || pg.Code != "55000" || pg.Hint == "" { //nolint:errorlint // as the server has sent it
		t.Errorf("a drain on a standby: %v", err)
	}
	for _, view := range []string{
		"status", "health", "progress", "tasks", "dead_letters", "errors", "slots", "workers", "pipelines",
		"audit", "row_state", "lanes",
	} {
		if _, err := there.Exec(t.Context(), "SELECT * FROM embedsidecar."+view); err != nil {
			t.Errorf("%s on a standby: %v", view, err)
		}
	}
}

// TestP2_AStandbyIsPromoted kills the server and promotes its standby. From PostgreSQL 17 on the slot is there, too,
// and the sidecar goes on where it was; before, the slot is gone. Every row is compared either way, and those that
// did not change cost nothing.
func TestP2_AStandbyIsPromoted(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		db := testenv.DB(t, testenv.On(testenv.Own(t, testenv.Options{Major: major})))
		db.MustExec(docs)
		r := newRig(t, db, intoTable("docs", "body"))
		standby := standbyOf(t, db, major)
		proxy := testenv.StartProxy(t, db.Server.Addr())
		r.url = db.URLVia(proxy.Addr(), r.role)
		r.options = func(o *sidecar.Options) { lossy(o); o.Failover = true }
		s, _ := r.start()
		r.edit("before ")
		r.settle()

		there, err := pgx.Connect(t.Context(), standby.URL(db.Name, testenv.Superuser))
		if err != nil {
			t.Fatal(err)
		}
		n := 100
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			if major < 17 {
				return true, ""
			}
			// The copy becomes fit to be used when the slot has moved on a little.
			n++
			db.MustExec(`INSERT INTO docs VALUES ($1, 'more')`, n)
			db.MustExecSuper(`SELECT pg_log_standby_snapshot()`)
			r.settle()
			var fit bool
			err := there.QueryRow(t.Context(),
				`SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1 AND synced AND NOT temporary
				AND invalidation_reason IS NULL)`, r.slot).Scan(&fit)
			return fit, fmt.Sprintf("the standby has no copy of the slot: %v", err)
		})
		r.edit("with a standby ")
		r.settle()
		sent := r.embedder.counts()
		scans := r.count(`SELECT sum(requested) FROM embedsidecar.scan`)
		end := testenv.Value[string](db, `SELECT pg_current_wal_flush_lsn()::text`)
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			var replayed bool
			err := there.QueryRow(t.Context(), `SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn`, end).Scan(&replayed)
			return replayed, fmt.Sprintf("the standby is behind: %v", err)
		})
		looksOnly(t, there, end)
		// Nobody can be asked there for the vector of a text; who has one finds rows.
		_, err = there.Exec(t.Context(), `SELECT embedsidecar.embed('a text')`)
		if err == nil || !strings.Contains(err.Error(), "is a standby") {
			t.Errorf("embed on a standby: %v", err)
		}
		owner, err := pgx.Connect(t.Context(), standby.URL(db.Name, testenv.Owner))
		if err != nil {
			t.Fatal(err)
		}
		var found int
		err = owner.QueryRow(t.Context(), `SELECT count(*) FROM embedsidecar.neighbours('docs', (SELECT embedding::text FROM docs_embedding LIMIT 1), 3)`).
			Scan(&found)
		if err != nil || found != 3 {
			t.Errorf("neighbours on a standby: %d, %v", found, err)
		}
		if err := owner.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := there.Close(t.Context()); err != nil {
			t.Error(err)
		}

		if err := db.Server.Stop(testenv.Killed); err != nil {
			t.Fatal(err)
		}
		killed := time.Now()
		if err := standby.Promote(t.Context()); err != nil {
			t.Fatal(err)
		}
		proxy.SetTarget(standby.Addr())
		db.Move(standby)
		r.edit("after ")
		r.recovered(killed)
		embedded := r.embedder.counts()
		r.verify()
		gaps, asked := s.Stream().Gaps.Load(), r.count(`SELECT sum(requested) FROM embedsidecar.scan`)-scans
		if asked == 0 {
			t.Error("no row was compared: what was under way on the old server may have been written here")
		}
		want := int64(0)
		if major < 17 {
			want = 1 // the slot was left behind
		}
		if gaps != want {
			t.Errorf("%d gaps, want %d", gaps, want)
		}
		for text, times := range embedded {
			if times > sent[text] && sent[text] > 0 {
				t.Errorf("%q was embedded again", text)
			}
		}
	})
}
