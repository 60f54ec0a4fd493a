// Package spread counts durations in a fixed number of buckets, so that counts of several processes and times can be
// added, and quantiles computed from the sum.
package spread

import (
	"math"
	"sync/atomic"
	"time"
)

const (
	// Steps is the number of buckets. The first ends at a millisecond, each ends at √2 times the previous end, and the
	// last has all durations above 2.3 hours.
	Steps  = 48
	double = 2 // buckets in which the length doubles
	first  = time.Millisecond
)

// Counts are the numbers of durations per bucket.
type Counts [Steps]int64

// Counter counts durations. Its zero value is ready for use; it is safe for concurrent use.
type Counter [Steps]atomic.Int64

// Note counts a duration.
func (c *Counter) Note(d time.Duration) { c[stepOf(d)].Add(1) }

// Load returns the current counts.
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

// end returns the upper bound of a bucket in seconds.
func end(step int) float64 { return first.Seconds() * math.Pow(2, float64(step)/double) }

// Add returns the sum of both.
func (c Counts) Add(o Counts) Counts {
	for i := range c {
		c[i] += o[i]
	}
	return c
}

// Since returns the difference to an earlier count.
func (c Counts) Since(o Counts) Counts {
	for i := range c {
		c[i] -= o[i]
	}
	return c
}

// Of makes counts from a list without trailing zeros, as List returns it.
func Of(list []int32) (c Counts) {
	for i := range min(len(list), Steps) {
		c[i] = int64(list[i])
	}
	return c
}

// List returns the counts without trailing zeros.
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

// Quantile returns the duration in seconds that a share q of the durations does not exceed, accurate to about a fifth;
// false: there are none.
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
		within := (rank - below) / float64(n) // position in the bucket, interpolated geometrically
		return end(i-1) * math.Pow(2, within/double), true
	}
	return 0, false
}
