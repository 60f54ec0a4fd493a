// Package sleep waits with a context, and wakes waiters.
package sleep

import (
	"context"
	"math/rand/v2"
	"time"
)

// For waits for d. It returns false immediately when ctx ends.
func For(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Between returns a random duration, so that concurrent waiters do not retry in step.
func Between(least, most time.Duration) time.Duration {
	return least + rand.N(max(most-least, 0)+1) //nolint:gosec // jitter is not a secret
}

// Wake wakes the receiver of a channel with capacity 1, now or at its next receive.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
