package replication

import (
	"context"
	"time"
)

// longestRest is how long what follows a batch that is not full waits for company at most. What a batch costs beside,
// by the stream and the embedder, is as much again.
const longestRest = 25 * time.Millisecond

// rest waits before the next batch, after one of n changes that took so long, and lets the reader know for how long.
// It returns false when ctx has ended.
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
