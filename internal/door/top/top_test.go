package top_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/door/top"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// TestFrame measures the rate from one look to the next, and says in the first line whether somebody is needed.
func TestFrame(t *testing.T) {
	t.Parallel()
	var v top.View
	now := time.Date(2026, 11, 23, 1, 2, 3, 0, time.UTC)
	if f := v.Frame(&observe.Database{}, now); f.Head != "embedsidecar 2026-11-23 01:02:03  nothing is set up yet: embedsidecar init; 0 pipelines, 0 rows to embed, 0 failed, 0 sidecars" {
		t.Errorf("head %q", f.Head)
	}
	d := observe.Database{
		Slots:    []report.Slot{{Name: "s", State: report.Streamed, Reason: "streamed by one", LagBytes: 2048, RetainedBytes: 1 << 20}},
		Sidecars: []report.Sidecar{{Instance: "one", Stream: health.Streaming, Succeeded: 7, Version: "1.0.0"}},
	}
	look := func(open int64, state health.Code, oldest *float64, after time.Duration) top.Frame {
		d.Pipelines = []observe.Pipeline{{Pipeline: report.Pipeline{
			Name: "docs", Plugin: "onnx", Model: "m", State: state, Works: state == health.Working, NeedsAct: state != health.Working, Pending: open, OldestSeconds: oldest, Coverage: new(0.5), Enabled: true,
			RowsEstimated: true, Failed: 2,
		}}}
		return v.Frame(&d, now.Add(after))
	}
	age := 12.0
	look(100, health.Working, &age, 0)
	look(80, health.Working, &age, time.Second)
	f := look(60, health.Working, &age, 2*time.Second)
	if got := fmt.Sprint(f.Pipelines.Rows); got != "[[docs working 60 0 0 2 20/s 12s 50.0% (est.) onnx/m]]" {
		t.Errorf("pipelines %s", got)
	}
	if len(f.Bars) != 1 || !strings.Contains(f.Bars[0], "docs  [########------------] 40.0%  40 of 100 rows, 20/s") {
		t.Errorf("bars %q", f.Bars)
	}
	if got := fmt.Sprint(f.Slots.Rows, f.Sidecars.Rows); got != "[[s streamed by one 2.0 kB 1.0 MB 0s ago]] [[one streaming 0s ago 7 0 1.0.0]]" {
		t.Errorf("slots and sidecars %s", got)
	}
	if !strings.Contains(f.Head, "all is well; 1 pipeline, 60 rows to embed, 2 failed, 1 sidecar") {
		t.Errorf("head %q", f.Head)
	}
	f = look(0, health.NoSidecar, nil, 3*time.Second)
	if got := fmt.Sprint(f.Pipelines.Rows); !strings.Contains(got, "no sidecar 0 0 0 2 - -") {
		t.Errorf("pipelines %s", got)
	}
	if !strings.Contains(f.Head, "1 pipeline need attention") || len(f.Bars) != 0 {
		t.Errorf("head %q, bars %q", f.Head, f.Bars)
	}
}
