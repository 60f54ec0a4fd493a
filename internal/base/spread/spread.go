// Package spread counts durations in a fixed number of steps, so that counts of several processes and times can be
// added, and quantiles read from the sum.
package spread

import (
	"math"
	"sync/atomic"
	"time"
)

const (
	// Steps is how many there are. The first ends at a millisecond, each ends at √2 times the one before, and the last
	// holds all that is longer than 2.3 hours.
	Steps  = 48
	double = 2 // steps in which the length doubles
	first  = time.Millisecond
)

// Counts are how many durations there were in each step.
type Counts [Steps]int64

// Counter counts. Its zero value has counted nothing; it is safe for concurrent use.
type Counter [Steps]atomic.Int64

// Note counts a duration.
func (c *Counter) Note(d time.Duration) { c[stepOf(d)].Add(1) }

// Load returns what was counted by now.
func (c *Counter) Load() (n Counts) {
	for i := range c {
		n[i] = c[i].Load()
	}
	return n
}

func stepOf(d time.Duration) int {
	if d <= first {
		return 0
	}
	return min(int(math.Ceil(double*math.Log2(float64(d)/float64(first)))), Steps-1)
}

// end is how long the durations of a step are at most, in seconds.
func end(step int) float64 { return first.Seconds() * math.Pow(2, float64(step)/double) }

// Add returns both together.
func (c Counts) Add(o Counts) Counts {
	for i := range c {
		c[i] += o[i]
	}
	return c
}

// Since returns what was counted after o was.
func (c Counts) Since(o Counts) Counts {
	for i := range c {
		c[i] -= o[i]
	}
	return c
}

// Of makes counts of a list that may end early, as List returns it.
func Of(list []int32) (c Counts) {
	for i := range min(len(list), Steps) {
		c[i] = int64(list[i])
	}
	return c
}

// List returns the counts without the zeros at their end.
func (c Counts) List() []int32 {
	list := []int32{}
	for i, n := range c {
		if n != 0 {
			list = append(list, make([]int32, i+1-len(list))...)
			list[i] = int32(min(n, math.MaxInt32)) //nolint:gosec // it fits
		}
	}
	return list
}

// Quantile returns how long a part q of the durations are at most, in seconds, to about a fifth; false: there are none.
func (c Counts) Quantile(q float64) (seconds float64, ok bool) {
	var all int64
	for _, n := range c {
		all += n
	}
	rank, below := max(q*float64(all), 1), 0.0
	for i, n := range c {
		if n == 0 || below+float64(n) < rank {
			below += float64(n)
			continue
		}
		if i == 0 {
			return end(0), true
		}
		within := (rank - below) / float64(n) // of the step, whose length is read as a power
		return end(i-1) * math.Pow(2, within/double), true
	}
	return 0, false
}
