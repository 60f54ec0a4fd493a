package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/manage/explain"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP10_WhatIsTakenOutOfTheQueueIsTold: discarding dead letters and cancelling rows, by command and by SQL, leave the
// same state and the same audit entry. status, wait, coverage and explain report these rows until they are re-queued.
func TestP10_WhatIsTakenOutOfTheQueueIsTold(t *testing.T) {
	t.Parallel()
	s := newStage(t, 6)
	s.db.MustExec("UPDATE docs SET body = 'POISON' WHERE id <= 4")
	s.set("EMBEDSIDECAR_PLUGIN_FAULTS=refuse-on=POISON")
	s.once(exitFailed, "--set", "retry.max_attempts=1")
	s.choosesTasks()
	s.sameBySQL()

	// Every place that could show it as done reports it.
	_, stderr := s.run(exitFailed, "run", "--once", "--no-init")
	s.has(stderr, "4 rows cancelled", "embedsidecar tasks requeue")
	s.ends(s.explained(0, "docs", "1"), explain.Cancelled)
	if p := s.state("public.docs"); p.Cancelled != 4 || p.Failed != 0 || p.CoverageOr(-1) > 0.5 {
		t.Errorf("status: %+v", p)
	}

	s.set("EMBEDSIDECAR_PLUGIN_FAULTS=")
	got := s.outcome("tasks", "requeue", "docs", "1") + ", " + s.outcome("tasks", "requeue", "docs")
	if got != "requeued 1, requeued 3" {
		t.Errorf("taken back: %s", got)
	}
	s.run(0, "run", "--once", "--no-init")
	s.run(0, "verify", "--deep", "6")
}

// Rows are re-queued for a later time, by every door, and by the age of their change.
func TestTasks_RequeueAtATime(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	// Let the stream read the write-backs before the rows are put off.
	<-s.dying("queue/before-enqueue-commit", "--table", "docs", "--columns", "title,body", "--into", "embedding").done
	if n := s.embedded(); n != 3 {
		t.Fatalf("%d of 3 rows were embedded before anything was read", n)
	}
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	if got := s.outcome("tasks", "requeue", "docs", "1", "2", "--at", in(time.Hour)); got != "requeued 2" {
		t.Errorf("%s", got)
	}
	s.run(exitUsage, "tasks", "requeue", "docs", "1", "--at", "tomorrow")
	s.run(exitUsage, "tasks", "requeue", "docs", "1", "--at", in(11*365*24*time.Hour))
	s.run(exitUsage, "tasks", "requeue", "docs", "1", "--older-than", "1m")
	d := s.start("--no-init")
	s.db.MustExec("SELECT embedsidecar.requeue('docs', ARRAY['3'], at => now() - interval '1 day')")
	s.db.MustExec("UPDATE docs SET title = 'new' WHERE id = 1") // a change does not wait
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		got := strings.Join(s.tasks(), " ")
		return got == "2:retrying", got
	})
	s.db.MustExec("SELECT embedsidecar.requeue('docs', ARRAY['2'], at => now() + interval '2 s')")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		got := strings.Join(s.tasks(), " ")
		return got == "", got
	})
	d.end(syscall.SIGTERM, 0)
	s.run(0, "tasks", "requeue", "docs", "1", "2")
	s.run(0, "tasks", "cancel", "docs", "1", "2")
	s.db.MustExecSuper("UPDATE embedsidecar.task SET committed_at = now() - interval '2 hours' WHERE row_key = '1'")
	if got := s.outcome("tasks", "requeue", "docs", "--older-than", "1h"); got != "requeued 1" {
		t.Errorf("older than an hour: %s", got)
	}
	if got := strings.Join(s.tasks(), " "); got != "1:todo 2:cancelled" {
		t.Errorf("%s", got)
	}
}

// Finished tasks are listed by command as in the view, and cleared.
func TestTasks_Finished(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	s.once(0)
	if got := len(s.tasks("--state", "finished")); got != 3 {
		t.Errorf("%d tasks are finished", got)
	}
	stdout, _ := s.run(0, "tasks", "list", "docs", "2", "--state", "finished", "-o", "json")
	list := decoded[map[string][]report.Task](t, stdout)["tasks"]
	if len(list) != 1 || list[0].Key != "2" || list[0].Outcome != "embedded" || list[0].StartedAt == nil ||
		list[0].CreatedAt == nil || list[0].FinishedAt.Before(*list[0].CreatedAt) {
		t.Errorf("row 2: %s", stdout)
	}
	stdout, _ = s.run(0, "tasks", "list", "--state", "finished", "--limit", "1")
	s.has(stdout, "embedded")
	if stdout, _ = s.run(0, "tasks", "list", "--lines", "--state", "finished"); strings.Count(stdout, `"outcome":"embedded"`) != 3 {
		t.Errorf("exported: %s", stdout)
	}
	_, stderr := s.run(exitUsage, "tasks", "list", "--state", "finished", "--state", "todo")
	s.has(stderr, "cannot be combined with other states")
	s.run(exitUsage, "tasks", "list", "--state", "finished", "--class", "data")
	s.run(0, "tasks", "clear-history", "docs")
	if got := len(s.tasks("--state", "finished")); got != 0 {
		t.Errorf("%d tasks are left", got)
	}
}

// tasks lists tasks, each with its state.
func (s *stage) tasks(args ...string) (list []string) {
	s.t.Helper()
	stdout, _ := s.run(0, append([]string{"tasks", "list", "-o", "json"}, args...)...)
	for _, task := range decoded[map[string][]report.Task](s.t, stdout)["tasks"] {
		list = append(list, task.Key+":"+task.State)
	}
	return list
}

// outcome is the result of an action for pipelines.
func (s *stage) outcome(args ...string) string {
	s.t.Helper()
	stdout, _ := s.run(0, append(args, "-o", "json")...)
	var words []string
	for _, o := range decoded[map[string][]verbs.Outcome](s.t, stdout)["pipelines"] {
		words = append(words, fmt.Sprintf("%s %d", o.Result, o.Rows))
	}
	return strings.Join(words, ", ")
}

// choosesTasks lists four dead letters by filters, and tries wrong filters.
func (s *stage) choosesTasks() {
	t := s.t
	t.Helper()
	for want, args := range map[string][]string{
		"1:failed 2:failed 3:failed 4:failed": {},
		"2:failed 4:failed":                   {"docs", "2", "4", "99"},
		"3:failed":                            {"docs", "--key", "3", "--state", "failed", "--state", "todo"},
		"1:failed":                            {"--limit", "1", "--class", "data"},
		"":                                    {"--older-than", "24h"},
	} {
		if got := strings.Join(s.tasks(args...), " "); got != want {
			t.Errorf("tasks list %v: %q, want %q", args, got, want)
		}
	}
	stdout, _ := s.run(0, "tasks", "list", "--lines")
	if strings.Count(stdout, "\n") != 4 || strings.Contains(stdout, "POISON") {
		t.Errorf("exported: %s", stdout)
	}

	// Wrong filters.
	for word, args := range map[string][]string{
		"did you mean failed?":          {"list", "--state", "fialed"},
		"did you mean public.docs?":     {"cancel", "public.dosc", "1"},
		"did you mean urgent?":          {"prioritise", "docs", "urgnet"},
		"a number above 0":              {"list", "--limit", "0"},
		"not negative":                  {"retry", "--older-than", "-1s"},
		"tasks cancel requires":         {"cancel", "docs"},
		"did you mean tasks discard?":   {"discrad"},
		"--yes and --dry-run exclude":   {"cancel", "docs", "1", "--yes", "--dry-run"},
		"expected a number above 0":     {"list", "--limit", "-1"},
		"there is no pipeline \"nope\"": {"requeue", "nope"},
	} {
		_, stderr := s.run(exitUsage, append([]string{"tasks"}, args...)...)
		s.has(stderr, word)
	}
}

// sameBySQL does the same by command and by SQL, for half of the rows each.
func (s *stage) sameBySQL() {
	t := s.t
	t.Helper()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"tasks", "discard", "docs", "1", "--dry-run"}, "would_be_discarded 1"},
		{[]string{"tasks", "discard", "docs", "1"}, "discarded 1"},
		{[]string{"tasks", "cancel", "docs", "2", "--dry-run"}, "would_be_cancelled 1"},
		{[]string{"tasks", "cancel", "docs", "2"}, "cancelled 1"},
		{[]string{"tasks", "cancel", "docs", "2"}, "nothing_to_cancel 0"},
		{[]string{"tasks", "prioritise", "docs", "high"}, "set 0"},
		{[]string{"pause", "docs"}, "paused 0"},
		{[]string{"resume", "docs"}, "resumed 0"},
		{[]string{"tasks", "retry", "docs", "--key", "99"}, "nothing_to_retry 0"},
	} {
		if got := s.outcome(c.args...); got != c.want {
			t.Errorf("%v: %q, want %q", c.args, got, c.want)
		}
	}
	s.db.RunRole()
	reader, operator := s.db.SQLRoles()
	owner := s.environ
	for _, sql := range []string{
		`embedsidecar.discard_dead('docs', keys => '{3}')`, `embedsidecar.cancel('docs', '{4}')`,
		`embedsidecar.cancel('docs', '{4}')`,
		`embedsidecar.set_priority('docs', 'normal')`, `embedsidecar.pause('docs')`, `embedsidecar.resume('docs')`,
		`embedsidecar.retry_failed('docs', keys => '{99}')`,
	} {
		s.db.MustExecSuper(`SET SESSION AUTHORIZATION ` + operator + `; SELECT * FROM ` + sql + `; RESET SESSION AUTHORIZATION`)
	}
	entries := func(role string) []string {
		return testenv.Values[string](s.db, `SELECT concat_ws(' ', action, pipeline, result, changed, arguments ->> 'keys_given', arguments ->> 'priority' IS NOT NULL)
			FROM embedsidecar.audit WHERE role = $1 AND action <> 'scan' ORDER BY audit_id`, role)
	}
	byCommand, bySQL := entries(testenv.Owner), entries(operator)
	if fmt.Sprint(byCommand) != fmt.Sprint(bySQL) || len(bySQL) != 7 {
		t.Errorf("the audit by command %q, by SQL %q", byCommand, bySQL)
	}
	want := "1:cancelled 2:cancelled 3:cancelled 4:cancelled"
	if got := strings.Join(s.tasks(), " "); got != want {
		t.Errorf("tasks are %s, want %s", got, want)
	}
	stdout, _ := s.run(0, "audit", "-o", "json", "--limit", "20")
	list := decoded[map[string][]report.Action](t, stdout)["actions"]
	if len(list) != 15 || list[14].Action != "scan" || list[13].Action != "discard" || list[13].SaidBy == "" ||
		list[13].Role != testenv.Owner {
		t.Errorf("audit: %+v", list)
	}

	// A role that may act by SQL may act by command; a role that may only read may not.
	s.as(operator)
	s.set("EMBEDSIDECAR_TRUST_OWNER=" + testenv.Owner)
	s.run(0, "pause")
	s.run(0, "resume")
	s.run(exitPermission, "tasks", "list")
	s.as(reader)
	s.run(exitPermission, "pause")
	s.environ = owner
}
