package sleep_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !sleep.For(t.Context(), time.Minute) || time.Since(began) != time.Minute {
			t.Errorf("slept %s, want 1m", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if sleep.For(ctx, time.Hour) || time.Since(began) != time.Minute+time.Second {
			t.Errorf("an ended context did not end the sleep: %s", time.Since(began))
		}
	})
}

func TestBetween(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		least := time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "least"))
		most := time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "most"))
		if d := sleep.Between(least, most); d < least || d > max(least, most) {
			t.Errorf("Between(%s, %s) = %s", least, most, d)
		}
	})
}
