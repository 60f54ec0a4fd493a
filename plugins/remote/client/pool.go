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
	startLimit  = 5                // concurrent requests to a new URL: as many as a host makes canary calls
	longPause   = 10 * time.Second // the longest pause that a server did not ask for
	maxAsked    = time.Hour        // the longest pause that a server may ask for
	brokenInRow = 3                // invalid answers in a row that pause a URL
)

// pool distributes requests over the URLs: each goes to the least loaded one. The concurrency limit of a URL grows by
// one after each round of successes and is halved when the URL is overloaded. A URL that asked for a pause or is down
// gets no requests. Queries go ahead of documents.
type pool struct {
	log       *slog.Logger
	pause     time.Duration // after a failure; doubles with each consecutive one
	patience  time.Duration // how long a request waits for a paused URL
	max       float64
	mu        sync.Mutex
	endpoints []*endpoint
	waiting   [2][]*waiter // documents, queries
	alarm     *time.Timer
}

type endpoint struct {
	url  *url.URL
	name string // for logs and errors, without user, path or query

	// The pool's lock guards the fields below.
	limit    float64 // requests at a time
	busy     int
	failures int       // in a row
	broken   int       // invalid answers in a row
	open     time.Time // not before
	why      *fault    // of the last pause; nil: none yet
	halved   time.Time
	proven   bool // it has answered the probe since its last failure
}

// waiter is a request that waits for a lease.
type waiter struct {
	got   chan *lease // buffered; nil: none in time
	avoid *endpoint
}

// lease is the right to send one request to a URL.
type lease struct {
	*endpoint
	began  time.Time
	proven bool   // the URL had answered the probe; otherwise the holder must send it
	fault  *fault // of its request; nil: none
}

// outcome is the result of a request for the pool.
type outcome int

const (
	answered   outcome = iota
	overloaded         // it asked to wait
	down               // no answer
	broken             // nonsense
	neutral            // unknown, because the caller gave up
	unfit              // wrong model, key or path
)

func newPool(urls []*url.URL, most int, pause, patience time.Duration, log *slog.Logger) *pool {
	p := &pool{log: log, pause: pause, patience: patience, max: float64(most)}
	for _, u := range urls {
		p.endpoints = append(p.endpoints, &endpoint{url: u, name: u.Scheme + "://" + u.Host, limit: min(startLimit, p.max)})
	}
	return p
}

// pausedError says how long no URL takes requests, and why.
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

// acquire waits for a lease, preferably not of the URL avoid. The error is a *pausedError, or that of ctx.
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
	p.waiting[lane] = slices.DeleteFunc(p.waiting[lane], func(other *waiter) bool { return other == w })
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

// closed returns how long no URL takes requests (0: one does), and why the next one is paused.
func (p *pool) closed() *pausedError {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.firstLocked()
	return &pausedError{max(time.Until(first.open), 0), first.why}
}

// firstLocked is the URL whose pause ends first, busy or not.
func (p *pool) firstLocked() *endpoint {
	return slices.MinFunc(p.endpoints, func(a, b *endpoint) int { return a.open.Compare(b.open) })
}

// dispatchLocked gives leases to the waiters, queries first. If no URL takes requests within p.patience, all waiters
// get none.
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

// wakeLocked schedules a dispatch for the end of the next pause. A released lease also dispatches.
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

// bestLocked returns the least loaded URL, or nil. A URL that is not proven gets one request at a time.
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

// prove records that a URL has answered the probe correctly.
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

// release returns a lease with the outcome of its request; asked is the pause that the server asked for.
func (p *pool) release(l *lease, o outcome, asked time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := l.endpoint
	e.busy--
	now := time.Now()
	switch o {
	case answered:
		e.failures, e.broken = 0, 0
		if float64(e.busy+1) >= e.limit-1 { // raise a limit only when it is used
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
		if len(p.endpoints) > 1 { // others may work; for a single URL the host itself waits for a fix
			e.open = now.Add(longPause)
		}
		e.proven = false
	case neutral:
	}
	p.dispatchLocked()
}

// halveLocked halves the limit, once for all requests that were under way together.
func (p *pool) halveLocked(e *endpoint, began, now time.Time) {
	if began.Before(e.halved) {
		return
	}
	e.halved = now
	e.limit = max(1, e.limit/2)
}

// closeLocked pauses a URL: for the time asked for, or with exponential backoff. Requests that were under way together
// count once.
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
