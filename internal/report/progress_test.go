package report_test

import (
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/health"
	"github.com/embedsidecar/embedsidecar/internal/report"
)

func TestCountdown(t *testing.T) {
	t.Parallel()
	var c report.Countdown
	now := time.Now()
	for i, step := range []struct {
		p    report.Pipeline
		want string
	}{
		{report.Pipeline{State: health.UpToDate}, ""},
		{report.Pipeline{State: health.Working, Pending: 100}, "[--------------------] 0.0%  0 of 100 rows"},
		{
			report.Pipeline{State: health.Working, Pending: 50, Running: 20, Retrying: 5},
			"[#####---------------] 25.0%  25 of 100 rows, 25/s, about 3s to go",
		},
		{report.Pipeline{State: health.Paused, Pending: 75}, ""},
		{report.Pipeline{State: health.Working, Pending: 400}, "[--------------------] 0.0%  0 of 400 rows"},
		{
			report.Pipeline{
				State: health.Backfill, Pending: 9, ScanPhase: "rows", ScanSeen: 15, ScanExpected: 10, ScanRate: 7, ScanLeft: 61,
			},
			"[####################] 100.0%  10 of 10 rows, 7/s, about 1m1s to go",
		},
		{report.Pipeline{State: health.UpToDate}, ""},
		{report.Pipeline{State: health.Working, Pending: 1}, "[--------------------] 0.0%  0 of 1 row"},
	} {
		if got := c.Of(&step.p, now).String(); got != step.want {
			t.Errorf("look %d: %q, want %q", i, got, step.want)
		}
		if step.p.State == health.Working {
			now = now.Add(time.Second)
		}
	}
}
