package setup

import (
	"testing"
	"time"
)

// A sidecar that starts waits for open transactions without limit; init in a terminal fails after a minute.
func TestOptions_WhoWaitsHowLongForASlot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		given Options
		want  time.Duration
	}{
		{Options{}, time.Minute},
		{Options{Starting: true}, 0},
		{Options{SlotTimeout: time.Second, Starting: true}, time.Second},
	} {
		if got := c.given.withDefaults().SlotTimeout; got != c.want {
			t.Errorf("starting %t, given %s: %s, want %s", c.given.Starting, c.given.SlotTimeout, got, c.want)
		}
	}
}
