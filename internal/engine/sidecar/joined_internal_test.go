package sidecar

import (
	"testing"
	"time"
)

// TestP5_SlowJoinsDoNotHoldUpTheStream: rows that take long to be found are found by a scan for a while, and those of
// other pipelines as ever.
func TestP5_SlowJoinsDoNotHoldUpTheStream(t *testing.T) {
	t.Parallel()
	var s slowOwners
	began := time.Now()
	s.note(1, began, began.Add(ownersTimeout/10))
	s.note(2, began, began.Add(ownersTimeout))
	for after, want := range map[int64]bool{2: true, 19: true, 21: false} {
		at := began.Add(ownersTimeout + time.Duration(after*int64(ownersTimeout)))
		if s.now(1, at) || s.now(2, at) != want {
			t.Errorf("after %s: %t, and of the slow one %t, want %t", at.Sub(began), s.now(1, at), s.now(2, at), want)
		}
	}
}
