package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/embedsidecar/embedsidecar/queue"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// lost does a round of sweeps and returns how many rows lost their lease.
func (f *fixture) lost(ctx context.Context) (lost int, err error) {
	args := pgx.StrictNamedArgs{"mend": true, "due_after": time.Time{}, "dead_after": queue.DeadAfterLost}
	err = f.db.Pool.QueryRow(ctx, sqlfiles.Query("sweep_tasks"), args).Scan(nil, &lost, nil, nil, nil)
	return lost, err
}

// done finishes tasks.
func (f *fixture) done(ctx context.Context, tasks []queue.Task) error {
	var outcomes []queue.Outcome
	for _, task := range tasks {
		outcomes = append(outcomes, queue.Outcome{Task: task, Action: queue.Done, What: "embedded"})
	}
	done, err := f.q.Finish(ctx, 1, tasks[0].Lease, 0, outcomes)
	if done.Done != len(tasks) {
		return fmt.Errorf("of %d tasks %+v, %w", len(tasks), done, err)
	}
	return err
}

// aboutToBeSwept leaves two tasks under a lease that has run out, and a retry that is due. A sweep looks at those
// first, and is held where it opens one, as long as holder is open.
func (f *fixture) aboutToBeSwept(t *testing.T) (tasks []queue.Task, holder pgx.Tx) {
	t.Helper()
	ctx := t.Context()
	if _, err := f.enqueue(ctx, change("retry", 10)); err != nil {
		t.Fatal(err)
	}
	f.finish(t, f.lease(t, 1), queue.Later)
	f.db.MustExec(`UPDATE embedsidecar.task SET due_at = now()`)
	if _, err := f.enqueue(ctx, change("1", 11), change("2", 11)); err != nil {
		t.Fatal(err)
	}
	if tasks = f.lease(t, 10); len(tasks) != 2 {
		t.Fatalf("%d tasks are leased, want 2", len(tasks))
	}
	f.db.MustExec(`UPDATE embedsidecar.lease SET leased_until = now() - interval '1 s'`)
	f.db.MustExec(`CREATE FUNCTION held() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END $$`)
	f.db.MustExec(`CREATE TRIGGER held BEFORE UPDATE ON embedsidecar.task
		FOR EACH ROW WHEN (OLD.state = 'retrying') EXECUTE FUNCTION held()`)
	holder, err := f.db.Pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Exec(ctx, `SELECT pg_advisory_xact_lock(1)`); err != nil {
		t.Fatal(err)
	}
	return tasks, holder
}

// What happens to a lease between the snapshot of a sweep and its look at leases decides, not what the snapshot has.
func TestSweep_LeavesWhatHappensMeanwhile(t *testing.T) {
	t.Parallel()
	const extend = `UPDATE embedsidecar.lease SET extended_at = now(), leased_until = now() + interval '1 h'`
	cases := map[string]struct {
		before    string
		meanwhile func(f *fixture, tasks []queue.Task) error
		lost      int   // by this sweep and the next one
		lives     int64 // leases after both
	}{
		"nothing": {meanwhile: func(*fixture, []queue.Task) error { return nil }, lost: 2},
		"it is extended": {meanwhile: func(f *fixture, tasks []queue.Task) (err error) {
			for range 3 { // each version lies elsewhere
				err = errors.Join(err, f.q.Extend(t.Context(), tasks[0].Lease, time.Hour))
			}
			return err
		}, lives: 1},
		"an extension is rolled back": {meanwhile: func(f *fixture, _ []queue.Task) error {
			tx, err := f.db.Pool.Begin(t.Context())
			if err == nil {
				_, err = tx.Exec(t.Context(), extend)
			}
			return errors.Join(err, tx.Rollback(t.Context()))
		}, lost: 2},
		"its worker finishes": {meanwhile: func(f *fixture, tasks []queue.Task) error {
			return f.done(t.Context(), tasks)
		}},
		"its worker finishes half of it": {meanwhile: func(f *fixture, tasks []queue.Task) error {
			return f.done(t.Context(), tasks[:1])
		}, lost: 1},
		"it is void, and extended": {
			before: `UPDATE embedsidecar.lease SET epoch = epoch - 1`,
			meanwhile: func(f *fixture, _ []queue.Task) error {
				_, err := f.db.Pool.Exec(t.Context(), extend)
				return err
			},
		},
		"another sweep takes it, and a worker has the tasks": {meanwhile: func(f *fixture, _ []queue.Task) error {
			if lost, err := f.lost(t.Context()); lost != 2 || err != nil {
				return fmt.Errorf("the other sweep took %d, %w", lost, err)
			}
			tasks, err := f.q.Lease(t.Context(), f.claim(queue.Anyone, 10))
			if len(tasks) != 2 {
				return fmt.Errorf("%d tasks are leased anew, want 2, %w", len(tasks), err)
			}
			return err
		}, lives: 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			ctx := t.Context()
			tasks, holder := f.aboutToBeSwept(t)
			defer func() { _ = holder.Rollback(context.WithoutCancel(ctx)) }()
			if c.before != "" {
				f.db.MustExec(c.before)
			}
			var work errgroup.Group
			var first int
			work.Go(func() (err error) { first, err = f.lost(ctx); return err })
			testenv.Eventually(t, 5*time.Minute, func() (bool, string) {
				return testenv.Value[bool](f.db, `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
					AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`), "the sweep is not held"
			})
			if err := errors.Join(c.meanwhile(f, tasks), holder.Commit(ctx), work.Wait()); err != nil {
				t.Fatal(err)
			}
			second, err := f.lost(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if first+second != c.lost {
				t.Errorf("%d and then %d rows lost their lease, want %d", first, second, c.lost)
			}
			if lives := testenv.Value[int64](f.db, `SELECT count(*) FROM embedsidecar.lease`); lives != c.lives {
				t.Errorf("%d leases are left, want %d", lives, c.lives)
			}
		})
	}
}

// Two sweepers beside a worker whose leases run out and are extended at the same moments: each lease is either his to
// the end, or lost once.
func TestSweep_TwoBesideAWorker(t *testing.T) {
	t.Parallel()
	const rounds, batch = 300, 3
	f := newFixture(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	swept := [2]int{}
	var sweepers errgroup.Group
	for i := range swept {
		sweepers.Go(func() error {
			for ctx.Err() == nil {
				n, err := f.lost(t.Context())
				if err != nil {
					return err
				}
				swept[i] += n
			}
			return nil
		})
	}
	var kept, lost int
	// Who is faster decides who has them: it goes on until each was, once.
	for round := 0; round < rounds || (kept == 0 || lost == 0) && round < 20*rounds; round++ {
		var changes []queue.Change
		for i := range batch {
			changes = append(changes, change(fmt.Sprint(round, "/", i), uint64(100+round)))
		}
		if _, err := f.enqueue(ctx, changes...); err != nil {
			t.Fatal(err)
		}
		tasks := f.lease(t, batch)
		if len(tasks) == 0 {
			t.Fatal("nothing is leased")
		}
		f.db.MustExec(`UPDATE embedsidecar.lease SET leased_until = now() - interval '1 ms'`)
		if round%2 == 0 {
			if err := f.q.Extend(ctx, tasks[0].Lease, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		switch done := f.finish(t, tasks, queue.Done); done.Done {
		case len(tasks):
			kept++
		case 0:
			lost += len(tasks)
		default:
			t.Fatalf("of %d tasks %+v", len(tasks), done)
		}
	}
	stop()
	if err := sweepers.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d leases were kept; %d tasks lost theirs, to one sweeper %d, to the other %d", kept, lost, swept[0], swept[1])
	if got := swept[0] + swept[1]; got != lost {
		t.Errorf("the sweepers took the leases of %d tasks, the worker lost those of %d", got, lost)
	}
	if kept == 0 || lost == 0 {
		t.Error("nothing was tried: all of it or none was lost")
	}
}
