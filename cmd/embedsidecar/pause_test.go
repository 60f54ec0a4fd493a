package main

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestPause(t *testing.T) {
	t.Parallel()
	s := newStage(t, 10)
	s.once(0)
	result := func(args ...string) string {
		t.Helper()
		stdout, _ := s.run(0, append(args, "-o", "json")...)
		list := decoded[map[string][]verbs.Outcome](t, stdout)["pipelines"]
		return fmt.Sprint(list[0].Pipeline, " ", list[0].Result)
	}
	d := s.start()
	d.logged("pipeline started", "pipeline")
	for _, step := range []struct {
		args []string
		want string
	}{
		{[]string{"pause", "public.docs", "--dry-run"}, "public.docs would_be_paused"},
		{[]string{"pause", "public.docs"}, "public.docs paused"},
		{[]string{"pause", "public.docs"}, "public.docs already_paused"},
	} {
		if got := result(step.args...); got != step.want {
			t.Errorf("%q: %s, want %s", step.args, got, step.want)
		}
	}
	// From now on nothing is embedded, though the running sidecar has not noticed the pause.
	s.db.MustExec("UPDATE docs SET title = 'new'")
	stdout, stderr := s.run(exitFailed, "wait", "--caught-up", "-o", "json")
	s.has(stdout, `"resting": [`, "public.docs", `"open": 0`)
	s.has(stderr, "inactive: public.docs")
	if n := testenv.Value[int](s.db, "SELECT count(*) FROM embedsidecar.task WHERE state = 'todo'"); n != 10 {
		t.Errorf("%d tasks wait, want 10", n)
	}
	stdout, _ = s.run(0, "status")
	s.has(stdout, "paused")
	d.end(syscall.SIGTERM, 0)

	// A restart with the same flags does not undo it.
	_, stderr = s.once(exitFailed)
	s.has(stderr, "inactive: public.docs")
	if got := result("pause"); got != " paused" {
		t.Error(got)
	}
	_, stderr = s.run(0, "resume")
	s.has(stderr, "public.docs stays paused")
	if got := result("resume", "public.docs"); got != "public.docs resumed" {
		t.Error(got)
	}
	s.once(0)
	s.run(0, "verify")
}
