// Package sleep waits in a way that a context can end, and wakes those who wait.
package sleep

import (
	"context"
	"math/rand/v2"
	"time"
)

// For waits for d. It returns false, at once, when ctx ends before.
func For(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Between returns a duration by chance, so that those who wait for the same thing do not come back in step.
func Between(least, most time.Duration) time.Duration {
	return least + rand.N(max(most-least, 0)+1) //nolint:gosec // jitter is no secret
}

// Wake has the one who receives from a channel of one place go on, now or when it comes to that.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
