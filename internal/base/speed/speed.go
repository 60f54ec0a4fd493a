// Package speed tells how fast something goes on of late, from counters that only rise.
package speed

import (
	"math"
	"time"
)

// Speed is how fast the rows of a pipeline are worked, and its embedder answers, of late.
type Speed struct {
	Rows  float64 `json:"rows_per_second"`
	Texts float64 `json:"texts_per_second"` // that the embedder answered, those of other pipelines included
	Calls float64 `json:"calls_per_second"`
	// how long a call took, on average
	CallMilliseconds float64 `json:"milliseconds_per_call"`
}

// Add is the speed of two processes together.
func (s Speed) Add(o Speed) Speed {
	all := Speed{Rows: s.Rows + o.Rows, Texts: s.Texts + o.Texts, Calls: s.Calls + o.Calls}
	if all.Calls > 0 {
		all.CallMilliseconds = (s.CallMilliseconds*s.Calls + o.CallMilliseconds*o.Calls) / all.Calls
	}
	return all
}

// Counted is what was done since some beginning.
type Counted struct {
	Rows, Texts, Calls int64
	Took               time.Duration // of all calls together
}

const (
	// window is what "of late" means, unless less than two batches end in it.
	window = 30 * time.Second
	// idle is after how long without work the next measurement begins: what comes then is not slow because nothing came
	// before.
	idle = 5 * time.Second
)

// Meter measures a speed from one look to the next. Its zero value has not looked yet.
type Meter struct {
	// the beginning, and each look at which something more was done
	steps []step
}

type step struct {
	c  Counted
	at time.Time
}

// Look tells the speed, given what was counted by now and whether something is in work. As rows end a batch at a time,
// it is that from the end of one batch to the end of another, and falls when batches stay away.
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
	case now.Rows < last.c.Rows, now.Calls < last.c.Calls: // of another worker, or embedder
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

// between is what was done in so many seconds.
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

// rounded is a number with as many digits as somebody reads.
func rounded(f float64) float64 {
	const digits = 100
	return math.Round(f*digits) / digits
}
