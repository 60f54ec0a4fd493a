package embed

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestRanking: while a higher rank is active, lower ones wait and get a periodic turn; otherwise none waits.
func TestRanking(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := NewService(nil, 0)
		waits := func(want bool, what string) {
			t.Helper()
			if got := s.Outranked(t.Context(), 1); got != want {
				t.Errorf("%s: it waits: %t, want %t", what, got, want)
			}
		}
		waits(false, "where nobody works")
		end := s.Begin(t.Context(), 0)
		waits(false, "beside a lower rank")
		end()
		end = s.Begin(t.Context(), 1)
		waits(false, "beside its own rank")
		end()

		end = s.Begin(t.Context(), 2)
		waits(true, "beside a higher rank")
		<-time.After(lentEvery)
		waits(false, "after a while")
		waits(true, "after that turn")
		if s.Outranked(WithShare(t.Context(), Share{Name: "other"}), 0) {
			t.Error("work of another share waits for it")
		}
		if s.Outranked(t.Context(), 2) || s.Outranked(t.Context(), 3) {
			t.Error("the highest rank at work waits, or a higher one")
		}
		end()
		waits(true, "between two batches of a higher rank")
		<-time.After(rankPause + time.Millisecond)
		waits(false, "when the higher rank is done")
	})
}
