package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

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
				case !f.q.Waiting(f.id, who):
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
		testenv.Eventually(t, time.Minute, func() (bool, string) {
			open := testenv.Value[int64](f.db, `SELECT count(*) FROM embedsidecar.task`)
			return open == 0, fmt.Sprintf("round %d: %d tasks open", i, open)
		})
	}
	cancel()
	if err := workers.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
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
