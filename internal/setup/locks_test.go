package setup_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/internal/setup/uninstall"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// while calls do while another session alters a table, until one of our statements has waited for the lock twice.
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
		if err != nil && err != pgx.ErrNoRows { //nolint:errorlint // Scan returns it unwrapped
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

// Commands wait for a table that is being altered or vacuumed: none fails, and none reports it as unfit.
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

// TestTrust_NobodyHoldsInitOff: arbitrary logins cannot take the lock that keeps two inits apart.
func TestTrust_NobodyHoldsInitOff(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), side())
	_, pool := b.tenant()
	stranger, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Release()
	if _, err := stranger.Exec(t.Context(), "SELECT pg_advisory_lock(111520477571428)"); err != nil {
		t.Fatal(err)
	}
	b.init(o)
	for _, table := range []string{"init_lock", "index_lock"} {
		for _, mode := range []string{"ACCESS SHARE", "EXCLUSIVE"} {
			_, err := stranger.Exec(t.Context(), "DO $$ BEGIN LOCK TABLE embedsidecar."+table+" IN "+mode+" MODE; END $$")
			if !database.HasCode(err, pgerrcode.InsufficientPrivilege) {
				t.Errorf("%s in mode %s: %v", table, mode, err)
			}
		}
	}
	release, err := database.Hold(t.Context(), b.pool, "embedsidecar.init_lock")
	if err != nil || release == nil {
		t.Fatal(err)
	}
	_, err = setup.Init(t.Context(), o)
	if !errors.Is(err, setup.ErrInitRunning) {
		t.Errorf("beside another init: %v", err)
	}
	open := testenv.Value[int64](b.Database, `SELECT count(*) FROM pg_stat_activity AS a JOIN pg_locks AS l USING (pid)
		WHERE l.relation = 'embedsidecar.init_lock'::regclass AND (a.backend_xid IS NOT NULL OR a.backend_xmin IS NOT NULL)`)
	if open != 0 {
		t.Error("who holds the lock keeps vacuum and slots waiting")
	}
	release()
	b.init(o)
}
