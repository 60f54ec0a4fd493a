package worker

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/queue"
)

// Limits for users' code. A statement of the write-back may write a batch into a large index.
const (
	longestRead  = time.Minute
	longestWrite = 5 * time.Minute
)

// limited runs f within a time limit: that of a direct change, a while after the server should have ended its
// statement, or otherwise longest.
func limited(ctx context.Context, d *queue.Direct, longest time.Duration, f func(ctx context.Context) error) error {
	const times = 4
	if d != nil && d.Timeout > 0 {
		longest = times * d.Timeout
	}
	return database.Limited(ctx, longest, f)
}

// NewOvertime returns Options.Overtime for the workers of a pool.
func NewOvertime(pool *pgxpool.Pool) *semaphore.Weighted {
	const share = 4 // the rest of the pool is for other pipelines
	return semaphore.NewWeighted(max(int64(pool.Config().MaxConns)/share, 1))
}

// overtime is when a statement of the pipeline last took too long.
type overtime struct{ last atomic.Pointer[time.Time] }

// note takes the error of a statement.
func (o *overtime) note(err error) {
	if rows.Fault(err) == database.Canceled {
		now := time.Now()
		o.last.Store(&now)
	}
}

// enterOvertime waits for a connection that the pipeline may hold for minutes, if it lately did. The returned function
// gives it back.
func (w *Worker) enterOvertime(ctx context.Context) (leave func(), err error) {
	const lately = 10 * time.Minute
	last := w.over.last.Load()
	if w.o.Overtime == nil || last == nil || time.Since(*last) > lately {
		return func() {}, nil
	}
	if err := w.o.Overtime.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	return func() { w.o.Overtime.Release(1) }, nil
}
