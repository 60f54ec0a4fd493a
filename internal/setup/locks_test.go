package setup_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/check"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/resolve"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/uninstall"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// while does something while somebody alters a table, for longer than a statement of ours waits for a lock: until one
// of them has been seen to wait twice.
func (b *base) while(table string, do func()) {
	b.t.Helper()
	lock := b.hold("LOCK TABLE " + table + " IN ACCESS EXCLUSIVE MODE")
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	waiting := func() (who string) {
		b.t.Helper()
		err := b.Super().QueryRow(b.t.Context(),
			`SELECT pid || ' ' || xact_start FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' LIMIT 1`).Scan(&who)
		if err != nil && err != pgx.ErrNoRows { //nolint:errorlint // Scan gives it as it is
			b.t.Fatal(err)
		}
		return who
	}
	first := ""
	testenv.Eventually(b.t, waitFor, func() (bool, string) {
		first = waiting()
		return first != "",
			"nobody waits for the lock"
	})
	testenv.Eventually(b.t, waitFor, func() (bool, string) {
		now := waiting()
		return now != "" && now != first, "it does not try again"
	})
	if err := lock.Rollback(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	<-done
}

// A table that somebody alters at the moment, or vacuums, is waited for: no command fails for it, and none calls it
// unfit.
func TestCommands_WaitForLockedTables(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), docs(), side())
	b.while("docs", func() {
		if r, err := setup.Init(t.Context(), o); err != nil || len(r.Steps) != 7 || len(r.Warnings) != 0 ||
			len(r.Pipelines) != 2 {
			t.Errorf("init: %q, %q, %v", whats(r), r.Warnings, err)
		}
	})
	b.while("docs", func() {
		found := b.check(o)
		if wrong := find(found, check.Wrong, ""); len(wrong) != 0 {
			t.Errorf("check: %+v", wrong)
		}
		if n := len(find(found, check.Warn, "REPEATABLE READ")); n != 1 {
			t.Errorf("check says the same %d times", n)
		}
	})
	b.while("embedsidecar.pipeline", func() {
		if p, err := resolve.Load(t.Context(), b.pool, o.Slot); err != nil || len(p) != 2 || p[0].Status != pipeline.Active {
			t.Errorf("load: %+v, %v", p, err)
		}
	})
	b.while("embedsidecar.lsn_checkpoint", func() {
		if done, err := uninstall.All(t.Context(), uninstall.Options{Pool: b.pool, DryRun: true}); err != nil ||
			len(done.SQL) != 3 {
			t.Errorf("uninstall: %q, %v", done.SQL, err)
		}
	})
}
