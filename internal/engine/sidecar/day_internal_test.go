package sidecar

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever is counted when: the sum is that of the last 23 to 24 hours, and nothing is counted twice.
func TestDay_PropertyHoldsADay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var d day
		type event struct {
			at time.Time
			n  int64
		}
		now := time.Now()
		began := now
		d.add(done{}, began)
		var all []event
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.IntRange(0, 30*60).Draw(t, "minutes")) * time.Minute)
			n := int64(rapid.IntRange(0, 9).Draw(t, "rows"))
			d.add(done{succeeded: n, failed: 1}, now)
			all = append(all, event{now, n})
			var want done
			hour := now.Sub(began) / time.Hour
			for _, e := range all {
				if hour-e.at.Sub(began)/time.Hour < 24 {
					want.add(done{e.n, 1})
				}
			}
			if got := d.sum(); got != want {
				t.Fatalf("%+v, want %+v", got, want)
			}
		}
	})
}
