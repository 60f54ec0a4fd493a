package spread_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/spread"
)

// A quantile of counts is within a bucket of that of the durations.
func TestQuantile_IsWithinAStep(t *testing.T) {
	t.Parallel()
	source := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		list := make([]float64, 1+source.IntN(500))
		var counter spread.Counter
		for i := range list {
			list[i] = math.Pow(10, -2.9+6*source.Float64())
			counter.Note(time.Duration(list[i] * float64(time.Second)))
		}
		slices.Sort(list)
		counts := spread.Of(counter.Load().List())
		for _, q := range []float64{0.01, 0.5, 0.99, 1} {
			want := list[max(int(math.Ceil(q*float64(len(list))))-1, 0)]
			got, ok := counts.Quantile(q)
			if !ok || got < want/math.Sqrt2*0.999 || got > want*math.Sqrt2*1.001 {
				t.Fatalf("quantile %g of %d durations: %g, want about %g", q, len(list), got, want)
			}
		}
	}
}

func TestCounts_AddUp(t *testing.T) {
	t.Parallel()
	var a, b spread.Counter
	for _, d := range []time.Duration{-time.Second, 0, time.Millisecond, 40 * time.Millisecond, 1000 * time.Hour} {
		a.Note(d)
	}
	b.Note(time.Second)
	sum := a.Load().Add(b.Load())
	if sum.Since(b.Load()) != a.Load() || len(sum.List()) != spread.Steps || spread.Of(sum.List()) != sum {
		t.Errorf("%v", sum)
	}
	if list := (spread.Counts{}).List(); len(list) != 0 {
		t.Errorf("nothing is %v", list)
	}
	if _, ok := (spread.Counts{}).Quantile(0.5); ok {
		t.Error("a quantile of nothing")
	}
	if got, _ := (spread.Counts{3}).Quantile(0.99); got != 0.001 {
		t.Errorf("%g s, want a millisecond at most", got)
	}
}
