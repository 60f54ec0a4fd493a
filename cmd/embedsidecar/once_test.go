package main

import "testing"

// TestP10_ATimeoutOfZeroLooksOnce: what is left now is the answer, and a streamer that has nothing to do says that.
func TestP10_ATimeoutOfZeroLooksOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t, 5)
	s.run(0, "init", "--pipeline", "docs: title, body -> embedding")
	_, stderr := s.run(exitTimeout, "wait", "--caught-up", "--timeout", "0")
	s.has(stderr, "not caught up", "no sidecar runs")
	if left := s.drains(exitTimeout, "--all", "--timeout", "0"); left.Result != "not_in_time" || left.Note == "" {
		t.Errorf("left: %+v", left)
	}
	s.start("--no-init")
	s.run(0, "wait", "--caught-up")
	s.run(0, "wait", "--caught-up", "--timeout", "0")
	if left := s.drains(0, "--all", "--timeout", "0"); left.Result != "drained" {
		t.Errorf("left: %+v", left)
	}
}
