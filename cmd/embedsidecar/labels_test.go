package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// Attempts and labels of a pipeline are applied while the sidecar runs, stored and shown. Labels choose pipelines
// wherever names do. Failed rows are retried one at a time with the configured priority.
func TestRun_AttemptsAndLabelsOfAPipeline(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	s.set("EMBEDSIDECAR_PLUGIN_FAULTS=refuse-on=POISON")
	file := s.configured(liveDocs+"\nlabels: {project: search, year: 2026}", liveBodies)
	d := s.start("--config", file, "--set", "retry.max_attempts=1000", "--set", "retry.priority=low",
		"--set", "limits.rows_in_work=1", "--set", "retry.max=20ms")
	s.stands("docs", health.UpToDate)
	s.stands("bodies", health.UpToDate)
	s.db.MustExec("UPDATE docs SET title = 'POISON' WHERE id = 1")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		got := testenv.Value[string](s.db, `SELECT coalesce(string_agg(pipeline || ' ' || priority || ' ' || (attempt > 3), ','), '')
			FROM embedsidecar.tasks WHERE labels @> '{"project": "search"}'`)
		return got == "docs low true", got
	})
	s.rewrite(file, liveDocs+"\nlabels: {project: find}\nmax_attempts: 2", liveBodies+"\nlabels: {project: other}")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		got := testenv.Value[string](s.db, `SELECT string_agg(pipeline || ' ' || coalesce(max_attempts, 0) || ' ' || (labels ->> 'project'), ', '
			ORDER BY pipeline) FROM embedsidecar.pipelines`)
		return got == "bodies 0 other, docs 2 find", got
	})
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		n := testenv.Value[int](s.db, "SELECT count(*)::int FROM embedsidecar.dead_letters")
		return n == 1, "it is no dead letter"
	})
	for word, want := range map[string]string{
		"label:project=find": "docs", "label:project": "docs bodies", "label:project=other": "bodies",
	} {
		stdout, _ := s.run(0, "status", word, "-o", "json")
		var got []string
		for _, p := range decoded[report.Status](t, stdout).Pipelines {
			got = append(got, p.Name)
			if p.Labels["project"] == "" || p.Name == "docs" && p.MaxAttempts != 2 {
				t.Errorf("%s: %+v", word, p)
			}
		}
		if len(got) != len(strings.Fields(want)) || !strings.Contains(want, got[0]) {
			t.Errorf("status %s: %v, want %s", word, got, want)
		}
	}
	stdout, _ := s.run(0, "tasks", "list", "label:project=find", "-o", "csv")
	s.has(stdout, "docs,1,failed,low,")
	s.run(0, "pause", "label:project=other")
	stdout, _ = s.run(0, "audit", "label:project=other", "-o", "csv")
	s.has(stdout, "pause,bodies,paused")
	if stdout, _ = s.run(0, "audit", "label:project=find", "-o", "csv"); strings.Contains(stdout, "bodies") {
		t.Errorf("audit of others: %s", stdout)
	}
	_, stderr := s.run(2, "status", "label:project=nobody")
	s.has(stderr, "label:project=nobody")
	d.end(syscall.SIGTERM, 0)
}
