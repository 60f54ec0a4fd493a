package report_test

import (
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/speed"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// A single read shows the speed that sidecars report, and the estimated end.
func TestSpeedLine(t *testing.T) {
	t.Parallel()
	fast := speed.Speed{Rows: 20.4, Texts: 21, Calls: 2, CallMilliseconds: 480}
	for want, p := range map[string]report.Pipeline{
		"": {Name: "docs", State: health.Working, Works: true, Pending: 5},
		"docs: 20 rows/s, 2040 rows to embed, about 1 min 42 s to go; embedder: 21 texts/s, 480 ms a call": {
			Name: "docs", State: health.Working, Works: true, Pending: 2000, Running: 40, Speed: fast, SecondsLeft: 102,
		},
		"docs: 20 rows/s, 100000 rows to embed or more; embedder: 21 texts/s, 480 ms a call": {
			Name: "docs", State: health.Backfill, Works: true, Pending: 100_000, ScanPhase: "rows", ScanExpected: 10, SecondsLeft: 9, Speed: fast,
		},
		"docs: 20 rows/s, 100000 rows to embed or more, at least 1 h 22 min to go; embedder: 21 texts/s, 480 ms a call": {
			Name: "docs", State: health.Working, Works: true, Pending: 100_000, Speed: fast, SecondsLeft: 4902, AtLeast: true,
		},
		"docs: 0.3 rows/s": {Name: "docs", State: health.UpToDate, Works: true, Speed: speed.Speed{Rows: 0.3}},
		"docs: 20 rows/s; embedder: 21 texts/s, 480 ms a call": {
			Name: "docs", State: health.Paused, Pending: 7, Speed: fast,
		},
	} {
		if got := p.SpeedLine(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	var c report.Countdown
	p := report.Pipeline{State: health.Working, Works: true, Pending: 100, Speed: fast, SecondsLeft: 5}
	if bar := c.Of(&p, time.Now()); bar.Rate != 20.4 || bar.Left != 5*time.Second {
		t.Errorf("the bar says %+v", bar)
	}
}

func TestCountdown(t *testing.T) {
	t.Parallel()
	var c report.Countdown
	now := time.Now()
	for i, step := range []struct {
		p    report.Pipeline
		want string
	}{
		{report.Pipeline{State: health.UpToDate, Works: true}, ""},
		{report.Pipeline{State: health.Working, Works: true, Pending: 100}, "[--------------------] 0.0%  0 of 100 rows"},
		{
			report.Pipeline{State: health.Working, Works: true, Pending: 50, Running: 20, Retrying: 5},
			"[#####---------------] 25.0%  25 of 100 rows",
		},
		{
			report.Pipeline{State: health.Working, Works: true, Pending: 50}, "[##########----------] 50.0%  50 of 100 rows, 25/s, about 2 s to go",
		},
		{report.Pipeline{State: health.Paused, Pending: 75}, ""},
		{report.Pipeline{State: health.Working, Works: true, Pending: 400}, "[--------------------] 0.0%  0 of 400 rows"},
		{
			report.Pipeline{
				State: health.Backfill, Works: true, Pending: 9, ScanPhase: "rows", ScanSeen: 15, ScanExpected: 10, ScanRate: 7, ScanLeft: 61,
			},
			"[####################] 100.0%  10 of 10 rows, 7/s, about 1 min 1 s to go",
		},
		{report.Pipeline{State: health.UpToDate, Works: true}, ""},
		{report.Pipeline{State: health.Working, Works: true, Pending: 1}, "[--------------------] 0.0%  0 of 1 row"},
	} {
		if got := c.Of(&step.p, now).String(); got != step.want {
			t.Errorf("look %d: %q, want %q", i, got, step.want)
		}
		if step.p.State == health.Working {
			now = now.Add(time.Second)
		}
	}
}

// Rows finish in batches, and the reads are not synchronized with them. From the second batch on, the rate is still
// that of the batches, whenever the reads happen. It falls when batches stop.
func TestCountdown_IsSteady(t *testing.T) {
	t.Parallel()
	const batch, each, rate = 768, 8, 96
	for offset := range each {
		var c report.Countdown
		began := time.Now()
		for second := offset; second < 200; second += 2 {
			p := c.Look(30_000-int64(second/each)*batch, began.Add(time.Duration(second)*time.Second))
			if p.Rate != 0 && (p.Rate < 0.75*rate || p.Rate > 1.35*rate) {
				t.Errorf("looks from second %d on: in second %d %.0f/s", offset, second, p.Rate)
			}
			if second > offset+3*each && (p.Rate == 0 || p.Left == 0) {
				t.Errorf("looks from second %d on: no rate in second %d", offset, second)
			}
		}
		if p := c.Look(30_000-24*batch, began.Add(400*time.Second)); p.Rate > 0.55*rate {
			t.Errorf("looks from second %d on: no batch has ended for 200 s, and it says %.0f/s", offset, p.Rate)
		}
	}
}
