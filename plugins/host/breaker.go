package host

import (
	"time"

	"github.com/cenkalti/backoff/v5"
)

// circuitOpensAt is how many failures in a row, without one good answer, open the circuit.
const circuitOpensAt = 5

// Circuit says whether calls go through to a plugin.
type Circuit string

// The states of a circuit.
const (
	Closed   Circuit = "closed"    // they do
	Open     Circuit = "open"      // none does until the pause is over: the plugin failed again and again
	HalfOpen Circuit = "half_open" // the pause is over, and one call tries the plugin; its success closes the circuit
)

// breaker keeps calls away from a plugin that fails again and again. A failure is an end of one of its processes that
// nobody asked for, a start that came to nothing, or a long row of bad answers; what single texts do is not. Its
// pauses double. The host's lock guards it.
type breaker struct {
	pauses   *backoff.ExponentialBackOff
	failures int       // in a row
	until    time.Time // end of the pause; zero while the circuit is closed
	probing  bool      // a call is trying the plugin
	reason   string    // of the last failure
}

// newBreaker returns a closed one, whose pauses are longer than those between two starts of one process.
func newBreaker(o Options) breaker {
	const times = 10
	return breaker{pauses: newDelays(times*o.RestartDelay, 2*max(o.RestartDelayMax, times*o.RestartDelay/2))}
}

func newDelays(first, longest time.Duration) *backoff.ExponentialBackOff {
	d := backoff.NewExponentialBackOff()
	d.InitialInterval, d.MaxInterval, d.Multiplier, d.RandomizationFactor = first, longest, 2, 0.2
	d.Reset()
	return d
}

func (b *breaker) state(now time.Time) Circuit {
	switch {
	case b.until.IsZero():
		return Closed
	case now.Before(b.until):
		return Open
	}
	return HalfOpen
}

// admit asks for a call to go through. probe: it is the one that tries the plugin, and ends with probed or failed.
// When it may not go through, wait is when to ask again.
func (b *breaker) admit(now time.Time) (probe bool, wait time.Duration) {
	const moment = 100 * time.Millisecond // for the call that is trying
	switch b.state(now) {
	case Open:
		return false, b.until.Sub(now)
	case HalfOpen:
		if b.probing {
			return false, moment
		}
		b.probing = true
		return true, 0
	case Closed:
	}
	return false, 0
}

// probed ends a try that has shown nothing.
func (b *breaker) probed() { b.probing = false }

// failed counts a failure. It returns the pause when this one opened the circuit, again or for the first time.
func (b *breaker) failed(now time.Time, reason string) (pause time.Duration) {
	b.failures++
	b.reason = reason
	switch state := b.state(now); {
	case state == Closed && b.failures < circuitOpensAt, state == Open:
		return 0
	}
	pause = b.pauses.NextBackOff()
	b.until, b.probing = now.Add(pause), false
	return pause
}

// trip opens the circuit at once.
func (b *breaker) trip(now time.Time, reason string) (pause time.Duration) {
	b.failures = max(b.failures, circuitOpensAt-1)
	return b.failed(now, reason)
}

// succeeded closes the circuit. It reports whether it was not closed.
func (b *breaker) succeeded() bool {
	was := !b.until.IsZero()
	if was || b.failures > 0 {
		b.pauses.Reset()
		b.failures, b.until, b.probing, b.reason = 0, time.Time{}, false, ""
	}
	return was
}
