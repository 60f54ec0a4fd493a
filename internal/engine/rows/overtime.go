package rows

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"
)

// Overtime bounds the connections of a pool that pipelines use for long: for rows that take longer than a page, and for
// write-backs of those whose triggers take long. The others are left to pipelines that take no time.
type Overtime struct{ free *semaphore.Weighted }

// NewOvertime returns the Overtime of a pool; nil: it has no limit.
func NewOvertime(pool *pgxpool.Pool) *Overtime {
	const share = 4
	if pool == nil {
		return nil
	}
	return &Overtime{semaphore.NewWeighted(max(int64(pool.Config().MaxConns)/share, 1))}
}

// Enter waits for one of these connections. leave gives it back.
func (o *Overtime) Enter(ctx context.Context) (leave func(), err error) {
	if o == nil {
		return func() {}, nil
	}
	if err := o.free.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	return func() { o.free.Release(1) }, nil
}

// do runs f with one of these connections.
func (o *Overtime) do(ctx context.Context, f func() error) error {
	leave, err := o.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return f()
}
