package sidecar_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestPooler_TransactionsInAnySession(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(string, ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExec(docs)
		r := newRig(t, db, spec("docs", "body"))
		r.edit("before ")
		// Through a role that lacks the settings as defaults nothing is touched, and no application's role is to be changed.
		_, err := database.Connect(t.Context(), testenv.StartPooler(t, db.URL(testenv.Owner), 1), database.Options{})
		var refused *database.Error
		if !errors.As(err, &refused) || refused.Kind != database.Pooler || strings.Contains(strings.Join(refused.Hint, " "),
			"ALTER ROLE") {
			t.Fatalf("got %v, want an error of kind pooler, and a hint on a role of its own", err)
		}
		p := testenv.StartPooler(t, r.url, 3)
		r.options = func(o *sidecar.Options) {
			pool := connect(t, p, 8) // the direct pool of the rig stays for the streamer
			if !database.Pooled(pool) {
				t.Error("the pool does not know that it is pooled")
			}
			o.Pool, o.DrainTimeout = pool, time.Hour
			o.Load = func(ctx context.Context) ([]pipeline.Pipeline, error) { return resolve.Load(ctx, pool, r.slot) }
		}
		s, stop := r.start()
		r.settle()
		for _, word := range []string{"one ", "two ", "three "} {
			r.edit(word)
			r.settle()
		}
		db.MustExec(`TRUNCATE docs`)
		r.edit("four ")
		r.settle()
		r.verify()
		if n := s.States()[0].Worker.Fenced.Load() + s.States()[0].Worker.Failed.Load(); n != 0 {
			t.Errorf("%d tasks failed or were lost", n)
		}
		// A hidden row is no deleted one here either.
		db.MustExec(`ALTER TABLE docs ENABLE ROW LEVEL SECURITY`)
		db.MustExec(`UPDATE docs SET body = 'hidden ' || id`)
		reason(t, s, "docs", "row-level security")
		if n := r.count(vectors(spec("docs"))); n != 43 {
			t.Errorf("%d vectors while the rows are hidden, want 43", n)
		}
		stop() // which waits for no batch: what is hidden is not in work
	})
}

// TestP4_ThroughAPooler: a write-back that waits for a user gives way after half a second there, too. What the
// session was told when it was made is lost, and without it a user who then waits for us is the one whose transaction
// the server ends.
func TestP4_ThroughAPooler(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(`ALTER TABLE docs ADD embedding vector(8)`)
	db.MustExec(`CREATE TABLE counters (id int PRIMARY KEY, n int)`)
	db.MustExec(`INSERT INTO counters VALUES (1, 0)`)
	db.MustExec(`CREATE FUNCTION counting() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN UPDATE public.counters SET n = n + 1; RETURN NULL; END $$`)
	db.MustExec(`CREATE TRIGGER counting AFTER UPDATE OF embedding ON docs FOR EACH ROW EXECUTE FUNCTION counting()`)
	r := newRig(t, db, column("docs", "body"))
	db.MustExecSuper(`ALTER ROLE ` + r.role + ` RESET lock_timeout`) // so that nothing but the transaction itself says it
	p := testenv.StartPooler(t, r.url, 3)
	r.options = func(o *sidecar.Options) {
		pool := connect(t, p, 8)
		o.Pool, o.DrainTimeout = pool, time.Hour
		o.Load = func(ctx context.Context) ([]pipeline.Pipeline, error) { return resolve.Load(ctx, pool, r.slot) }
	}
	// The user is not the one who gives way, even if ours is slow to.
	user := r.locking(`SET LOCAL deadlock_timeout = '1 min'`, `UPDATE counters SET n = 0`)
	db.MustExec(`INSERT INTO docs VALUES (1, 'one')`)
	s, _ := r.start()
	// However long the user holds his row: the write-back waits for him, gives way, and comes again.
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		states := s.States()
		if len(states) == 0 || states[0].Worker == nil {
			return false, "no worker"
		}
		postponed := r.count(`SELECT count(*) FROM embedsidecar.task WHERE error_code = 'locked'`)
		return postponed > 0, "the write-back waits for the user's transaction"
	})
	// The user's own change of the row meets nobody who waits for him for longer than that.
	if _, err := user.Exec(t.Context(), `UPDATE docs SET body = 'two' WHERE id = 1`); err != nil {
		t.Fatalf("the user's transaction was ended: %v", err)
	}
	if err := user.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.settle()
	r.verify()
}
