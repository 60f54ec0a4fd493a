// Package pace keeps small batches from using the whole server: when changes come one by one, each batch costs the same
// however small it is, and a batch that waits longer holds more changes.
package pace

import (
	"sync"
	"time"
)

// Stream and Queue are the maximum shares of time for small batches: from the stream, and from the queue.
const (
	Stream = 0.1
	Queue  = 0.2
)

// ahead is how much time they may use in advance, so that occasional changes need not wait.
const ahead = 40 * time.Millisecond

// Pace counts the time of small batches. It is safe for concurrent use; it needs a share.
type Pace struct {
	Share float64 // of the time

	mu    sync.Mutex
	taken time.Duration // time used beyond the share, at the time at
	at    time.Time
}

// Spend counts a batch that ends now.
func (p *Pace) Spend(took time.Duration, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken = p.left(now) + max(took, 0)
	p.at = now
}

// Rest returns how long the next batch must wait, at most most.
func (p *Pace) Rest(now time.Time, most time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(min(time.Duration(float64(p.left(now)-ahead)/p.Share), most), 0)
}

// left returns the time used beyond the share as of now.
func (p *Pace) left(now time.Time) time.Duration {
	return max(p.taken-time.Duration(p.Share*float64(now.Sub(p.at))), 0)
}
