package replication

import (
	"context"
	"time"
)

// longestRest is the longest pause after a batch that is not full. The stream and the embedder add about as much again.
const longestRest = 25 * time.Millisecond

// rest pauses after a batch of n changes that took the given time, and publishes the pause to the reader. It returns
// false when ctx has ended.
func (ses *session) rest(ctx context.Context, n int, took time.Duration) bool {
	if n >= maxBatch {
		return true
	}
	now := time.Now()
	ses.pace.Spend(took, now)
	d := ses.pace.Rest(now, longestRest)
	if d <= 0 {
		return ctx.Err() == nil
	}
	ses.restsUntil.Store(time.Now().Add(d).UnixNano())
	return wait(ctx, d)
}
