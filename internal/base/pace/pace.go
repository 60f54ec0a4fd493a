// Package pace keeps work that comes in small pieces from taking all of the server: where changes come one by one,
// each batch of them costs the same however few there are, and the longer the next one waits the more it holds.
package pace

import (
	"sync"
	"time"
)

// Stream and Queue are the shares of the time that small batches take at most: those that come straight from the
// stream, and those that come through the queue.
const (
	Stream = 0.1
	Queue  = 0.2
)

// ahead is what they may take ahead, which lets changes that come now and then go at once.
const ahead = 40 * time.Millisecond

// Pace counts what small batches take. It is safe for concurrent use; it needs a share.
type Pace struct {
	Share float64 // of the time

	mu    sync.Mutex
	taken time.Duration // beyond the share, as it was
	at    time.Time
}

// Spend counts a batch that has ended now.
func (p *Pace) Spend(took time.Duration, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken = p.left(now) + max(took, 0)
	p.at = now
}

// Rest returns how long the next batch is to wait: never longer than most.
func (p *Pace) Rest(now time.Time, most time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(min(time.Duration(float64(p.left(now)-ahead)/p.Share), most), 0)
}

// left returns what of the time taken is beyond the share by now.
func (p *Pace) left(now time.Time) time.Duration {
	return max(p.taken-time.Duration(p.Share*float64(now.Sub(p.at))), 0)
}
