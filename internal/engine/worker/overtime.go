package worker

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/queue"
)

// longestWrite limits each statement of a write-back, which may run users' triggers.
const longestWrite = time.Minute

// limited runs f within a time limit: of a direct change, that for which the stream waits, a while after the server
// should have ended the statement.
func limited(ctx context.Context, d *queue.Direct, f func(ctx context.Context) error) error {
	const times = 4
	longest := longestWrite
	if d != nil && d.Timeout > 0 {
		longest = times * d.Timeout
	}
	return database.Limited(ctx, longest, f)
}

// overtime is when a write-back of the pipeline last took too long.
type overtime struct{ last atomic.Pointer[time.Time] }

func (o *overtime) note(err error) {
	if errors.Is(err, database.ErrTooLong) {
		now := time.Now()
		o.last.Store(&now)
	}
}

// enter waits until the pipeline may use a connection for long, if it lately did. leave ends that.
func (o *overtime) enter(ctx context.Context, of *rows.Overtime) (leave func(), err error) {
	const lately = 10 * time.Minute
	if last := o.last.Load(); last == nil || time.Since(*last) > lately {
		return func() {}, nil
	}
	return of.Enter(ctx)
}
