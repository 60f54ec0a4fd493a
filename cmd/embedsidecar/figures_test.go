package main

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/embedsidecar/embedsidecar/config"
	"github.com/embedsidecar/embedsidecar/pipeline"
	"github.com/embedsidecar/embedsidecar/report"
	"github.com/embedsidecar/embedsidecar/sidecar"
	"github.com/embedsidecar/embedsidecar/worker"
)

// A counter never falls within a process: neither when a pipeline gets a new worker, nor when the database's answer is from before the
// pipeline was made.
func TestFigures_CountersDoNotFall(t *testing.T) {
	t.Parallel()
	f := newFigures(&environment{config: config.Default()}, nil)
	defer f.close()
	work := func(embedded int64) []sidecar.State {
		stats := &worker.Stats{}
		stats.Embedded.Store(embedded)
		return []sidecar.State{{Pipeline: pipeline.Pipeline{Spec: pipeline.Spec{Name: "docs"}}, Worker: stats}}
	}
	counted := func(want float64) {
		t.Helper()
		if got := testutil.ToFloat64(f.pipeline("docs").metrics.Finished.At("embedded")); got != want {
			t.Errorf("%v rows embedded, want %v", got, want)
		}
	}
	first := work(5)
	f.worked(first)
	counted(5)
	f.told(report.Status{}, first)
	counted(5)
	first[0].Worker.Embedded.Add(1) // after the last look at it
	f.worked(work(2))
	counted(8)
	f.told(report.Status{}, nil) // it is gone
	if len(f.pipelines) != 0 {
		t.Error("a pipeline that is gone is still shown")
	}
}
