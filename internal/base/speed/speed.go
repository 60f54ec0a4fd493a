// Package speed measures the recent speed of work from rising counters.
package speed

import (
	"math"
	"time"
)

// Speed is the recent speed of a pipeline's rows and of its embedder.
type Speed struct {
	Rows  float64 `json:"rows_per_second"`
	Texts float64 `json:"texts_per_second"` // that the embedder answered, including those of other pipelines
	Calls float64 `json:"calls_per_second"`
	// average duration of a call
	CallMilliseconds float64 `json:"milliseconds_per_call"`
}

// Add returns the sum of the speeds of two processes.
func (s Speed) Add(o Speed) Speed {
	all := Speed{Rows: s.Rows + o.Rows, Texts: s.Texts + o.Texts, Calls: s.Calls + o.Calls}
	if all.Calls > 0 {
		all.CallMilliseconds = (s.CallMilliseconds*s.Calls + o.CallMilliseconds*o.Calls) / all.Calls
	}
	return all
}

// Counted has totals since some start.
type Counted struct {
	Rows, Texts, Calls int64
	Took               time.Duration // of all calls together
}

const (
	// window is the time that counts as recent, unless fewer than two batches end in it.
	window = 30 * time.Second
	// idle is the time without work after which a new measurement begins, so that the pause does not count as slow
	// work.
	idle = 5 * time.Second
)

// Meter measures a speed between calls of Look. Its zero value is ready for use.
type Meter struct {
	// the start, and each Look with progress
	steps []step
}

type step struct {
	c  Counted
	at time.Time
}

// Look returns the speed, given the current totals and whether work is in progress. Rows finish in batches, so it
// measures from the end of one batch to the end of another, and falls when no further batch ends.
func (m *Meter) Look(now Counted, busy bool, at time.Time) Speed {
	begin := func() Speed {
		m.steps = append(m.steps[:0], step{now, at})
		return Speed{}
	}
	if len(m.steps) == 0 {
		return begin()
	}
	last := m.steps[len(m.steps)-1]
	switch {
	case now.Rows < last.c.Rows, now.Calls < last.c.Calls: // of another worker or embedder
		return begin()
	case now != last.c:
		last = step{now, at}
		m.steps = append(m.steps, last)
	case !busy && (len(m.steps) == 1 || at.Sub(last.at) >= idle):
		return begin()
	}
	for len(m.steps) > 2 && at.Sub(m.steps[1].at) >= window {
		m.steps = m.steps[1:]
	}
	if len(m.steps) == 1 {
		return Speed{}
	}
	first := m.steps[0]
	took := last.at.Sub(first.at)
	batch := took / time.Duration(len(m.steps)-1)
	return between(first.c, now, max(took, at.Sub(first.at)-batch).Seconds())
}

// between returns the speed of what was done in the given seconds.
func between(a, b Counted, seconds float64) Speed {
	if seconds <= 0 {
		return Speed{}
	}
	s := Speed{
		Rows: rounded(float64(b.Rows-a.Rows) / seconds), Texts: rounded(float64(b.Texts-a.Texts) / seconds),
		Calls: rounded(float64(b.Calls-a.Calls) / seconds),
	}
	if calls := b.Calls - a.Calls; calls > 0 {
		s.CallMilliseconds = rounded(float64((b.Took - a.Took).Milliseconds()) / float64(calls))
	}
	return s
}

// rounded rounds a number for display.
func rounded(f float64) float64 {
	const digits = 100
	return math.Round(f*digits) / digits
}
