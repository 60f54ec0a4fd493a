package main

import (
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/status/observe"
)

// TestTop_WhereNobodyWatches prints one frame, with all that a terminal would show.
func TestTop_WhereNobodyWatches(t *testing.T) {
	t.Parallel()
	s := newStage(t, 20)
	s.run(3, "top")
	s.set("EMBEDSIDECAR_PLUGIN_FAULTS=refuse-on=title 7")
	s.once(4, "--set", "retry.max_attempts=1")
	stdout, _ := s.run(0, "top")
	s.has(stdout, "PIPELINE", "LAG", "COVERAGE", "public.docs", "fake", "BEHIND", s.slot,
		"! public.docs: 1 row given up, ", "row 7: ", "1 failed")
	if strings.Contains(stdout, "\x1b") {
		t.Errorf("signs for a terminal: %q", stdout)
	}
	stdout, _ = s.run(0, "top", "-o", "json")
	if d := decoded[observe.Database](t, stdout); len(d.Pipelines) != 1 || d.Pipelines[0].Failed != 1 {
		t.Errorf("%+v", d)
	}
	began := time.Now()
	s.run(0, "top", "--every", "1h")
	if took := time.Since(began); took > waitTimeout/2 {
		t.Errorf("it waited for a second frame: %s", took)
	}
}
