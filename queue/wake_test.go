package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// Whatever comes while workers lease, finish or look whether they may rest is found by a wake alone: nobody looks at
// the places from the beginning here.
func TestWait_MissesNoChange(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.q.SetLooks(24*time.Hour, 24*time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var workers errgroup.Group
	for _, who := range []queue.Who{queue.Express, queue.Anyone, queue.Anyone} {
		workers.Go(func() error {
			for ctx.Err() == nil {
				tasks, err := f.q.Lease(t.Context(), f.claim(who, 4))
				switch {
				case err != nil:
					return err
				case len(tasks) > 0:
					if err := f.end(t.Context(), tasks); err != nil {
						return err
					}
				case f.q.MostUrgent(f.id, who) < 0:
					f.q.Wait(ctx, f.id, who)
				}
			}
			return nil
		})
	}
	const rounds, keys = 150, 5
	for i := range rounds {
		for range 1 + rand.IntN(3) {
			if _, err := f.enqueue(t.Context(), change(fmt.Sprint(rand.IntN(keys)), uint64(10+i))); err != nil {
				t.Fatal(err)
			}
		}
		testenv.Eventually(t, 5*time.Minute, func() (bool, string) {
			open := testenv.Value[int64](f.db, `SELECT count(*) FROM embedsidecar.task`)
			return open == 0, fmt.Sprintf("round %d: %d tasks open", i, open)
		})
	}
	cancel()
	if err := workers.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestWait_MissesNoLatePlace: a change takes its place before it commits. Who began to claim behind it meanwhile claims
// it all the same once it is told of it.
func TestWait_MissesNoLatePlace(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.q.SetLooks(24*time.Hour, 24*time.Hour)
	add := func(key string) error {
		_, err := f.enqueue(t.Context(), change(key, 10))
		return err
	}
	if err := add("late"); err != nil {
		t.Fatal(err)
	}
	held := f.lease(t, 1)
	ending, err := f.db.Pool.Begin(t.Context()) // as finish_tasks does, and its commit takes a while
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ending.Rollback(context.WithoutCancel(t.Context())) }()
	for _, sql := range []string{"DELETE FROM embedsidecar.task", "DELETE FROM embedsidecar.lease"} {
		if _, err := ending.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	var late errgroup.Group
	late.Go(func() error { return add("late") })
	testenv.Eventually(t, 5*time.Minute, func() (bool, string) {
		return testenv.Value[int64](f.db,
				"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == 1,
			"the change does not wait for the one that was worked"
	})
	if err := queue.Add(t.Context(), direct{f.db.Pool}, f.id, pipeline.Normal, []string{"early"}); err != nil {
		t.Fatal(err)
	}
	f.q.Wake(f.id)
	if tasks := f.lease(t, 4); len(tasks) != 1 || tasks[0].RowKey != "early" {
		t.Fatalf("claimed %+v beside %+v, want the one of key early", tasks, held)
	}
	if err := ending.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := late.Wait(); err != nil {
		t.Fatal(err)
	}
	if tasks := f.lease(t, 4); len(tasks) != 1 || tasks[0].RowKey != "late" {
		t.Errorf("claimed %+v, want the one of key late", tasks)
	}
}

// end finishes tasks, of which some may have been changed meanwhile, or gives them back.
func (f *fixture) end(ctx context.Context, tasks []queue.Task) error {
	if rand.IntN(10) == 0 {
		return f.q.GiveBackLease(ctx, tasks[0].Lease)
	}
	outcomes := make([]queue.Outcome, len(tasks))
	for i, task := range tasks {
		outcomes[i] = queue.Outcome{Task: task, Action: queue.Done, What: "embedded"}
	}
	_, err := f.q.Finish(ctx, 1, tasks[0].Lease, 0, outcomes)
	return err
}

// TestTrust_ACallWaitsForNobody: a login that holds the number of the calls holds up nobody who calls, and the database
// is looked at all the same.
func TestTrust_ACallWaitsForNobody(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.db.MustExec(`INSERT INTO embedsidecar.worker (instance, version, quiet_until)
		VALUES ('a', '1', now() + interval '1 hour')`)
	holder, err := f.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := holder.Exec(t.Context(), `SELECT pg_advisory_xact_lock(1701013875, 1)`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var called bool
	if err := f.db.Pool.QueryRow(ctx, `SELECT embedsidecar.call()`).Scan(&called); err != nil || !called {
		t.Errorf("called: %t, %v", called, err)
	}
}
