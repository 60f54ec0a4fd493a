package queue_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/queue"
)

// deaf is a database whose answers to leases are lost: the statements are run.
type deaf struct {
	*pgxpool.Pool
	lost int
}

func (d *deaf) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	results := d.Pool.SendBatch(ctx, b)
	if last := b.QueuedQueries[len(b.QueuedQueries)-1]; !strings.Contains(last.SQL, "lease_tasks") {
		return results
	}
	d.lost++
	return unheard{results}
}

type unheard struct{ pgx.BatchResults }

func (u unheard) Close() error {
	return errors.Join(u.BatchResults.Close(), errors.New("the connection was lost"))
}

// What a lost connection or a failed attempt leaves leased does not wait until the lease runs out.
func TestLease_OfWhichNobodyHeardIsGivenBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if _, err := f.enqueue(t.Context(), change("1", 10), change("2", 10)); err != nil {
		t.Fatal(err)
	}
	leased := func(want int64) {
		t.Helper()
		var n int64
		if err := f.db.Pool.QueryRow(t.Context(),
			"SELECT coalesce(sum(cardinality(task_ids)), 0) FROM embedsidecar.lease WHERE leased_until > now() + '30 min'").Scan(
			&n); err != nil {
			t.Fatal(err)
		}
		if n != want {
			t.Fatalf("%d tasks are leased, want %d", n, want)
		}
	}
	unheard := &deaf{Pool: f.db.Pool}
	f.q = queue.New(unheard)
	if _, err := f.q.Lease(t.Context(), f.claim(queue.Anyone, 1)); err == nil || unheard.lost != 1 {
		t.Fatalf("the answer was heard: %v", err)
	}
	leased(1)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	// what was lost is not forgotten when this fails, too
	if _, err := f.q.Lease(over, f.claim(queue.Anyone, 1)); err == nil {
		t.Fatal("a lease after the end of its context")
	}
	leased(1)
	other := queue.New(f.db.Pool) // of somebody else: it is neither given back by us nor handed out twice
	if tasks, err := other.Lease(t.Context(), f.claim(queue.Anyone, 1)); err != nil || len(tasks) != 1 {
		t.Fatalf("%v, %v", tasks, err)
	}
	leased(2)
	if _, err := f.q.Lease(t.Context(), f.claim(queue.Anyone, 1)); err == nil {
		t.Fatal("the answer was heard")
	}
	leased(2) // it was given back, and lost again

	f.q = queue.New(f.db.Pool)
	f.db.MustExec("DELETE FROM embedsidecar.lease")
	tasks := f.lease(t, 2)
	if err := f.q.GiveBackLease(over, tasks[0].Lease); err == nil {
		t.Fatal("given back after the end of the context")
	}
	leased(2)
	if again := f.lease(t, 2); len(again) != 2 || again[0].Lease == tasks[0].Lease {
		t.Errorf("the next lease has %+v, want both tasks anew", again)
	}
}
