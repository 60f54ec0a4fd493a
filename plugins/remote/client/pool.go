package client

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
)

// Bounds of what the pool learns.
const (
	startLimit  = 5                // requests at a time to an unknown URL: as many as a host has canaries
	longPause   = 10 * time.Second // the longest pause that nobody asked for
	maxAsked    = time.Hour        // the longest pause that a server may ask for
	brokenInRow = 3                // nonsense in a row after which a URL is left alone
)

// pool shares requests out to the URLs: to the one with the fewest under way, as many to each as it takes without
// complaint (one more after each round of successes, half after a complaint), none to one that asked for a pause or
// is down. Queries go ahead of documents.
type pool struct {
	log       *slog.Logger
	pause     time.Duration // of a URL that failed; doubles with each failure in a row
	patience  time.Duration // for how long a request waits for a URL that pauses
	max       float64
	mu        sync.Mutex
	endpoints []*endpoint
	waiting   [2][]*waiter // documents, queries
	alarm     *time.Timer
}

type endpoint struct {
	url  *url.URL
	name string // for logs and errors: without user, path or query

	// All below belongs to the pool's lock.
	limit    float64 // requests at a time
	busy     int
	failures int       // in a row
	broken   int       // nonsense in a row
	open     time.Time // not before
	why      *fault    // it was left alone last; nil: it never was
	halved   time.Time
	proven   bool // it has answered the probe since it was last down
}

// waiter is a request that waits for a place.
type waiter struct {
	got   chan *lease // buffered; nil: none to be had in time
	avoid *endpoint
}

// lease is a place at a URL.
type lease struct {
	*endpoint
	began  time.Time
	proven bool   // the URL had answered the probe when the lease was given; the holder must ask it otherwise
	fault  *fault // of its request; nil: none
}

// outcome is what became of a request.
type outcome int

const (
	answered   outcome = iota
	overloaded         // it asked to wait
	down               // no answer
	broken             // nonsense
	neutral            // says nothing about the URL: the caller gave up
	unfit              // it has another model, another key, another path
)

func newPool(urls []*url.URL, most int, pause, patience time.Duration, log *slog.Logger) *pool {
	p := &pool{log: log, pause: pause, patience: patience, max: float64(most)}
	for _, u := range urls {
		p.endpoints = append(p.endpoints, &endpoint{url: u, name: u.Scheme + "://" + u.Host, limit: min(startLimit, p.max)})
	}
	return p
}

// pausedError says that no URL takes requests for so long, and why.
type pausedError struct {
	after time.Duration
	why   *fault
}

func (e *pausedError) Error() string {
	const pauses = "every URL pauses for another "
	if e.why == nil {
		return pauses + e.after.Round(time.Millisecond).String()
	}
	return fmt.Sprintf("%v; %s%s", e.why, pauses, e.after.Round(time.Millisecond))
}

// acquire waits for a place; with avoid, rather at another URL. The error is a *pausedError, or that of ctx.
func (p *pool) acquire(ctx context.Context, query bool, avoid *endpoint) (*lease, error) {
	w := &waiter{got: make(chan *lease, 1), avoid: avoid}
	lane := 0
	if query {
		lane = 1
	}
	p.mu.Lock()
	p.waiting[lane] = append(p.waiting[lane], w)
	p.dispatchLocked()
	p.mu.Unlock()
	select {
	case l := <-w.got:
		if l == nil {
			return nil, p.closed()
		}
		return l, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	for i, other := range p.waiting[lane] {
		if other == w {
			p.waiting[lane] = append(p.waiting[lane][:i:i], p.waiting[lane][i+1:]...)
			break
		}
	}
	p.mu.Unlock()
	select {
	case l := <-w.got: // it came at the same moment
		if l != nil {
			p.release(l, neutral, 0)
		}
	default:
	}
	return nil, context.Cause(ctx)
}

// closed is how long no URL takes requests (0: one does), and why the first that will takes none now.
func (p *pool) closed() *pausedError {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.firstLocked()
	return &pausedError{max(time.Until(first.open), 0), first.why}
}

// firstLocked is the URL that takes requests at the earliest moment, busy or not.
func (p *pool) firstLocked() *endpoint {
	return slices.MinFunc(p.endpoints, func(a, b *endpoint) int { return a.open.Compare(b.open) })
}

// dispatchLocked gives places to those who wait, queries first. When no URL will take requests for longer than
// anybody should wait, they are all sent away.
func (p *pool) dispatchLocked() {
	now := time.Now()
	opens := p.firstLocked().open
	tooLong := opens.Sub(now) > p.patience
	for lane := len(p.waiting) - 1; lane >= 0; lane-- {
		for len(p.waiting[lane]) > 0 {
			w := p.waiting[lane][0]
			var l *lease
			if !tooLong {
				if e := p.bestLocked(now, w.avoid); e != nil {
					e.busy++
					l = &lease{endpoint: e, began: now, proven: e.proven}
				} else {
					break
				}
			}
			p.waiting[lane] = p.waiting[lane][1:]
			w.got <- l
		}
	}
	if len(p.waiting[0])+len(p.waiting[1]) > 0 {
		p.wakeLocked(now)
	}
}

// wakeLocked looks again when the next URL ends its pause. Places that come free are looked at anyway.
func (p *pool) wakeLocked(now time.Time) {
	var next time.Time
	for _, e := range p.endpoints {
		if e.open.After(now) && (next.IsZero() || e.open.Before(next)) {
			next = e.open
		}
	}
	if next.IsZero() {
		return
	}
	if p.alarm == nil {
		p.alarm = time.AfterFunc(next.Sub(now), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.dispatchLocked()
		})
		return
	}
	p.alarm.Reset(next.Sub(now))
}

// bestLocked returns the URL with the most room, or nil. One that has not been proven gets one request at a time.
func (p *pool) bestLocked(now time.Time, avoid *endpoint) *endpoint {
	var best *endpoint
	for _, e := range p.endpoints {
		room := int(e.limit)
		if !e.proven {
			room = 1
		}
		if e.open.After(now) || e.busy >= room {
			continue
		}
		switch {
		case best == nil, best == avoid:
			best = e
		case e != avoid && e.load() < best.load():
			best = e
		}
	}
	return best
}

// load is the share of an endpoint's limit that is in use; ties go to the higher limit.
func (e *endpoint) load() float64 { return (float64(e.busy) + 0.5) / e.limit }

// prove notes that a URL has answered the probe as it should.
func (p *pool) prove(l *lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !l.endpoint.proven {
		p.log.Info("url in use", "url", l.name)
	}
	l.endpoint.proven, l.proven = true, true
	l.failures, l.broken = 0, 0
	p.dispatchLocked()
}

// release gives a place back and tells how it went; asked is the pause that the server asked for.
func (p *pool) release(l *lease, o outcome, asked time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := l.endpoint
	e.busy--
	now := time.Now()
	switch o {
	case answered:
		e.failures, e.broken = 0, 0
		if float64(e.busy+1) >= e.limit-1 { // a limit that is not reached is not known to be too low
			e.limit = min(e.limit+1/e.limit, p.max)
		}
	case overloaded:
		p.halveLocked(e, l.began, now)
		p.closeLocked(l, now, asked)
	case down:
		p.halveLocked(e, l.began, now)
		p.closeLocked(l, now, asked)
		p.unprovenLocked(e, "it does not answer")
	case broken:
		if e.broken++; e.broken >= brokenInRow {
			p.closeLocked(l, now, asked)
			p.unprovenLocked(e, "it answers with nonsense")
		}
	case unfit:
		if len(p.endpoints) > 1 { // the others may do; of the only one, the host waits for a person
			e.open = now.Add(longPause)
		}
		e.proven = false
	case neutral:
	}
	p.dispatchLocked()
}

// halveLocked lowers the limit, once for all requests that were under way together.
func (p *pool) halveLocked(e *endpoint, began, now time.Time) {
	if began.Before(e.halved) {
		return
	}
	e.halved = now
	e.limit = max(1, e.limit/2)
}

// closeLocked makes a pause: the one asked for, or one that doubles with each failure in a row. Requests that were
// under way together count once.
func (p *pool) closeLocked(l *lease, now time.Time, asked time.Duration) {
	e, began := l.endpoint, l.began
	pause := min(asked, maxAsked)
	if began.After(e.open) || e.failures == 0 {
		if pause <= 0 {
			pause = min(p.pause<<min(e.failures, 10), longPause)
			pause = sleep.Between(pause, pause+pause/5)
		}
		e.failures++
	}
	if until := now.Add(pause); until.After(e.open) {
		e.open = until
	}
	e.why = l.fault
}

func (p *pool) unprovenLocked(e *endpoint, why string) {
	if e.proven && len(p.endpoints) > 1 {
		p.log.Warn("url left alone", "url", e.name, "why", why, "pause_seconds", time.Until(e.open).Seconds())
	}
	e.proven = false
}
