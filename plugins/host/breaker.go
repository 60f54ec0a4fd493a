package host

import (
	"time"

	"github.com/cenkalti/backoff/v5"
)

// circuitOpensAt is the number of consecutive failures that opens the circuit. A good answer resets the count.
const circuitOpensAt = 5

// Circuit is the state of a plugin's circuit breaker.
type Circuit string

// The states of a circuit.
const (
	Closed   Circuit = "closed"    // calls go through
	Open     Circuit = "open"      // no calls until the pause is over: the plugin failed repeatedly
	HalfOpen Circuit = "half_open" // the pause is over, and one call probes the plugin; success closes the circuit
)

// breaker stops calls to a plugin that fails repeatedly. Failures are an unrequested exit of a process, a failed start,
// and a series of bad answers. Errors of single texts do not count. Its pauses double. The host's lock guards it.
type breaker struct {
	pauses   *backoff.ExponentialBackOff
	failures int       // in a row
	until    time.Time // end of the pause; zero while the circuit is closed
	probing  bool      // a probe is under way
	reason   string    // of the last failure
}

// newBreaker returns a closed breaker. Its pauses are longer than the restart delays of one process.
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

// admit decides whether a call may go through. If wait is not 0, the call may not, and the caller asks again after
// wait. If probe is true, the call probes the plugin and ends with probed or failed.
func (b *breaker) admit(now time.Time) (probe bool, wait time.Duration) {
	const moment = 100 * time.Millisecond // while the probe is under way
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

// probed ends a probe without a result.
func (b *breaker) probed() { b.probing = false }

// failed counts a failure. It returns the pause if this failure opened the circuit, or reopened it.
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

// succeeded closes the circuit. It reports whether the circuit was open or half open.
func (b *breaker) succeeded() bool {
	was := !b.until.IsZero()
	if was || b.failures > 0 {
		b.pauses.Reset()
		b.failures, b.until, b.probing, b.reason = 0, time.Time{}, false, ""
	}
	return was
}
