// Package pace keeps work that comes in small pieces from taking all of the server: where changes come one by one,
// each batch of them costs the same however few there are, and the longer the next one waits the more it holds.
package pace

import (
	"sync"
	"time"
)

// Usual is the share of a core that small batches of a pipeline take at most, unless somebody wants another. Those of
// the stream take one part of it at most, and those that come through the queue another: few changes come both ways.
const (
	Usual  = 0.25
	Stream = 0.4
	Queue  = 0.8
)

// Longest is how long they rest at most, for a share of a core with which it is so long usually.
func Longest(usually time.Duration, share float64) time.Duration {
	return time.Duration(float64(usually) * Usual / share)
}

// ahead is what they may take ahead, which lets changes that come now and then go at once.
const ahead = 40 * time.Millisecond

// Pace counts what small batches take. It is safe for concurrent use; it needs a share.
type Pace struct {
	Share float64       // of the time
	Most  time.Duration // rest that work may be worth, however much there was; 0: no bound

	mu    sync.Mutex
	taken time.Duration // beyond the share, as it was
	at    time.Time
}

// Spend counts a batch that has ended now.
func (p *Pace) Spend(took time.Duration, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken = p.left(now) + max(took, 0)
	if p.Most > 0 {
		p.taken = min(p.taken, ahead+time.Duration(p.Share*float64(p.Most)))
	}
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
