package speed_test

import (
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/speed"
)

// Rows finish in batches: a Look between two batches returns the same as one at the end of a batch.
func TestMeter_IsSteadyWhateverABatchTakes(t *testing.T) {
	t.Parallel()
	const rows = 64
	for name, every := range map[string]int{"a batch a second": 1, "one in 40 s": 40} {
		var m speed.Meter
		begun := time.Now()
		want := float64(rows) / float64(every)
		for second := range 200 {
			n := int64(second / every)
			c := speed.Counted{Rows: rows * n, Texts: rows * n, Calls: n, Took: time.Duration(n) * time.Second / 2}
			got := m.Look(c, true, begun.Add(time.Duration(second)*time.Second))
			if second >= every && (got.Rows != want || got.Texts != want || got.CallMilliseconds != 500) {
				t.Fatalf("%s: after %d s it is %+v, want %g rows/s", name, second, got, want)
			}
		}
	}
}

// A recent slowdown shows, and time without work does not count as slow.
func TestMeter_TellsOfLate(t *testing.T) {
	t.Parallel()
	var m speed.Meter
	begun := time.Now()
	var c speed.Counted
	at := 0
	look := func(rows int64, busy bool) speed.Speed {
		at++
		c.Rows += rows
		return m.Look(c, busy, begun.Add(time.Duration(at)*time.Second))
	}
	for range 60 {
		look(100, true)
	}
	var got speed.Speed
	for range 60 {
		got = look(10, true)
	}
	if got.Rows != 10 {
		t.Errorf("a minute after it became slow: %+v", got)
	}
	for range 60 {
		got = look(0, true)
	}
	if got.Rows >= 10 {
		t.Errorf("a minute without a batch: %+v", got)
	}
	for range 10 {
		got = look(0, false)
	}
	if got != (speed.Speed{}) {
		t.Errorf("nothing is done: %+v", got)
	}
	if got = look(50, true); got.Rows != 50 {
		t.Errorf("after a rest: %+v", got)
	}
	c = speed.Counted{}
	if got = look(1, true); got != (speed.Speed{}) {
		t.Errorf("of another worker: %+v", got)
	}
	one := speed.Speed{Rows: 1, Texts: 2, Calls: 1, CallMilliseconds: 10}
	other := speed.Speed{Rows: 1, Calls: 3, CallMilliseconds: 50}
	both := one.Add(other)
	if want := (speed.Speed{Rows: 2, Texts: 2, Calls: 4, CallMilliseconds: 40}); both != want {
		t.Errorf("together they are %+v, want %+v", both, want)
	}
}
