package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/manage/explain"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// jobs listens to the notifications about jobs.
type jobs struct {
	s    *stage
	conn *pgx.Conn
}

func (s *stage) listens() *jobs {
	s.t.Helper()
	s.db.MustExec("SELECT embedsidecar.notify_changes(true)")
	conn, err := pgx.Connect(s.t.Context(), s.db.URL(testenv.Owner))
	if err == nil {
		s.t.Cleanup(func() { _ = conn.Close(context.Background()) })
		_, err = conn.Exec(s.t.Context(), "LISTEN embedsidecar_changes")
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return &jobs{s: s, conn: conn}
}

// until returns the notifications since the last call, up to an event.
func (j *jobs) until(last string) []string {
	j.s.t.Helper()
	ctx, cancel := context.WithTimeout(j.s.t.Context(), waitTimeout)
	defer cancel()
	var list []string
	for !slices.Contains(list, last) {
		n, err := j.conn.WaitForNotification(ctx)
		if err != nil {
			j.s.t.Fatalf("%q is not told, only %q: %v", last, list, err)
		}
		var e struct {
			Event, Job, Stage, Pipeline string
			Rows                        int64
			Seconds                     *float64
			AuditID                     int64 `json:"audit_id"`
		}
		if err := json.Unmarshal([]byte(n.Payload), &e); err != nil {
			j.s.t.Fatal(err)
		}
		if e.Event == "job" {
			list = append(list, e.Job+" "+e.Stage)
			if e.Seconds == nil || *e.Seconds < 0 || e.AuditID == 0 {
				j.s.t.Errorf("told: %s", n.Payload)
			}
		}
	}
	return list
}

// audited returns the jobs of the audit since one, as the command prints them.
func (s *stage) audited(after int64) (list []string, newest int64) {
	s.t.Helper()
	stdout, _ := s.run(0, "audit", "-o", "json")
	for _, a := range decoded[map[string][]report.Action](s.t, stdout)["actions"] {
		newest = max(newest, a.ID)
		if a.ID > after && slices.Contains([]string{"scan", "bulk", "model_change"}, a.Action) {
			if ended := a.FinishedAt != nil; !ended || a.FinishedAt.Before(a.At) {
				a.Result += " (open)"
			}
			list = append(list, fmt.Sprintf("%s %s %d %t", a.Action, a.Result, a.Changed, a.Arguments["asked_by"] != nil))
		}
	}
	slices.Reverse(list)
	return list, newest
}

// The audit and the notifications report each job once, from start over its stages to its end, even if sidecars and
// loads are killed meanwhile.
func TestJobs_AreToldOnce(t *testing.T) {
	t.Parallel()
	const rows = 8000
	s := newStage(t, rows)
	docs := "docs: title, body -> table docs_embedding"
	s.run(0, "init", "--pipeline", docs)
	j := s.listens()
	expects := func(what string, got, want []string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%q, want\n%q", what, got, want)
		}
	}
	kill := func(d *daemon, pipelines string) {
		t.Helper()
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			n := testenv.Value[int64](s.db, `SELECT coalesce(max(rows_seen), 0) FROM embedsidecar.scan JOIN embedsidecar.pipeline USING (pipeline_id)
				WHERE phase = 'rows' AND `+pipelines)
			return n > 0 && n < rows, fmt.Sprintf("%d rows are compared", n)
		})
		d.end(syscall.SIGKILL, -1)
	}
	slow := func() *daemon {
		s.set("EMBEDSIDECAR_PLUGIN_FAULTS=hang-on=title 7999") // so the scan is still running when the sidecar is killed
		return s.start("--pipeline", docs)
	}
	quick := func() *daemon {
		s.set("EMBEDSIDECAR_PLUGIN_FAULTS=")
		return s.start("--pipeline", docs)
	}

	kill(slow(), "true")
	d := quick()
	expects("backfill", j.until("scan done"), []string{"scan rows", "scan orphans", "scan done"})
	s.run(0, "wait", "--caught-up")
	got, last := s.audited(0)
	expects("backfill", got, []string{fmt.Sprintf("scan done %d false", rows)})

	s.run(0, "pause", "docs") // otherwise the scan may overtake a slow command, and there are two scans
	s.run(0, "reembed", "docs")
	s.run(0, "resume", "docs")
	expects("reembed", j.until("scan done"),
		[]string{"reembed reembed_requested", "scan rows", "scan orphans", "scan done"})
	s.run(0, "wait", "--caught-up")
	got, last = s.audited(last)
	expects("reembed", got, []string{fmt.Sprintf("scan done %d true", rows)})

	// The load's program kills the command that would resume.
	s.run(-1, "bulk", "docs", "--", "sh", "-c", "kill -9 $PPID")
	expects("bulk", j.until("bulk begun"), []string{"bulk begun"})
	s.db.MustExec("UPDATE docs SET title = 'new ' || id WHERE id <= 5")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		list := s.tasks()
		return len(list) == 5, strings.Join(list, " ")
	})
	s.run(0, "resume", "docs")
	s.run(0, "resume", "docs")
	expects("bulk", j.until("bulk ended"), []string{"bulk ended"})
	s.run(0, "bulk", "--", "true")
	expects("bulk", j.until("bulk ended"), []string{"bulk begun", "bulk ended"})
	s.run(0, "wait", "--caught-up")
	got, last = s.audited(last)
	expects("bulk", got, []string{"bulk ended 5 false", "bulk ended 0 false"})

	d.end(syscall.SIGTERM, 0)
	d = slow()
	s.run(0, "model", "change", "docs", "--to-plugin", "fake-dims12")
	kill(d, "beside IS NOT NULL")
	d = quick()
	expects("change", j.until("model_change complete"),
		[]string{"model_change made", "scan rows", "scan orphans", "scan done", "model_change complete"})
	got, last = s.audited(last)
	expects("change", got,
		[]string{fmt.Sprintf("model_change complete %d false", rows), fmt.Sprintf("scan done %d true", rows)})
	s.run(0, "model", "switch", "docs")
	s.run(0, "model", "rollback", "docs")
	s.run(0, "model", "switch", "docs")
	s.run(0, "model", "drop-old", "docs")
	expects("change", j.until("model_drop_old dropped_previous"), []string{
		"model_switch switched", "model_rollback rolled_back", "model_switch switched", "model_drop_old dropped_previous",
	})

	// A generation that is dropped before it is complete is reported so.
	d.end(syscall.SIGTERM, 0)
	s.run(0, "model", "change", "docs", "--to-plugin", "fake")
	s.run(0, "model", "drop-old", "docs")
	got, _ = s.audited(last)
	expects("drop", got, []string{"model_change dropped_next 0 false"})
	if open := testenv.Value[int64](s.db, "SELECT count(*) FROM embedsidecar.audit WHERE finished_at IS NULL"); open != 0 {
		t.Errorf("%d jobs are open at last", open)
	}
}

// Task times have the same names by every door, and finished tasks are kept as long as configured.
func TestTasks_TimesAndHistory(t *testing.T) { //nolint:funlen // one story
	t.Parallel()
	s := newStage(t, 6)
	s.db.MustExec("UPDATE docs SET body = 'POISON' WHERE id <= 2")
	s.set("EMBEDSIDECAR_PLUGIN_FAULTS=refuse-on=POISON")
	s.once(exitFailed, "--set", "retry.max_attempts=2")
	names := []string{"created_at", "scheduled_at", "started_at", "finished_at"}
	type row map[string]any
	times := func(what string, r row) {
		t.Helper()
		for _, name := range names {
			if at, ok := r[name].(string); !ok || len(at) < len("2026-11-26T17:00:00Z") {
				t.Errorf("%s: %s is %v", what, name, r[name])
			}
		}
		times := []string{fmt.Sprint(r["created_at"]), fmt.Sprint(r["started_at"]), fmt.Sprint(r["finished_at"])}
		if !slices.IsSorted(times) {
			t.Errorf("%s: %v", what, r)
		}
	}
	stdout, _ := s.run(0, "tasks", "list", "docs", "1", "-o", "json")
	times("list", decoded[map[string][]row](t, stdout)["tasks"][0])
	stdout, _ = s.run(0, "tasks", "list", "--lines", "docs", "1")
	times("export", decoded[row](t, stdout))
	stdout, _ = s.run(0, "explain", "docs", "1", "-o", "json")
	story := decoded[map[string][]struct {
		Task    row
		History []row
	}](t, stdout)["rows"][0]
	times("explain", story.Task)
	times("explain, history", story.History[0])
	for _, view := range []string{"tasks", "finished_tasks"} {
		times(view, decoded[row](t, testenv.Value[string](s.db, `SELECT jsonb_build_object('created_at', created_at, 'scheduled_at', scheduled_at,
			'started_at', started_at, 'finished_at', finished_at)::text FROM embedsidecar.`+view+` WHERE row_key = '1'`)))
	}
	stdout, _ = s.run(0, "explain", "docs", "1")
	s.has(stdout, "The task was created ", "; its last attempt began ", ", and ended ")

	// Counts and ages match the view.
	stdout, _ = s.run(0, "status", "--lanes", "-o", "json")
	lanes := decoded[struct{ Lanes []report.Lane }](t, stdout).Lanes
	if len(lanes) != 1 || lanes[0].Rows != 2 || lanes[0].State != "failed" || lanes[0].Average > 1000*lanes[0].Oldest+1 ||
		lanes[0].Average < 1000*lanes[0].Newest-1 { // ms; both are rounded
		t.Errorf("lanes: %+v", lanes)
	}
	stdout, _ = s.run(0, "status", "--lanes")
	s.has(stdout, "AVERAGE", "low", "failed")
	s.run(exitUsage, "status", "--lanes", "--watch")

	// On demand, by command and SQL, by pipeline and age, with an audit entry.
	count := func() string {
		return testenv.Value[string](s.db, "SELECT count(*)::text FROM embedsidecar.finished_tasks")
	}
	if count() != "6" {
		t.Fatalf("%s tasks are told as finished", count())
	}
	for after, pages := "", 1; pages > 0; pages++ { // page by page, by command and SQL, each entry once
		page := []string{"tasks", "list", "--state", "finished", "--limit", "2", "-o", "json"}
		if after != "" {
			page = append(page, "--after", after)
		}
		stdout, _ = s.run(0, page...)
		list := decoded[map[string][]report.Task](t, stdout)["tasks"]
		var told string
		for i := range list {
			told += list[i].Key + " " + list[i].Cursor + "\n"
		}
		if sql := testenv.Value[string](s.db, `SELECT coalesce(string_agg(row_key || ' ' || cursor || E'\n', ''), '')
			FROM embedsidecar.finished(after => nullif($1, ''), max_rows => 2)`, after); sql != told {
			t.Errorf("page %d: by command %q, by SQL %q", pages, told, sql)
		}
		if len(list) == 0 {
			if pages != 4 {
				t.Errorf("six finished tasks are %d pages of two", pages-1)
			}
			break
		}
		after = list[len(list)-1].Cursor
	}
	for _, state := range []string{"finished", "failed"} {
		_, stderr := s.run(exitUsage, "tasks", "list", "--state", state, "--after", "nonsense")
		s.has(stderr, "--after", "-o json")
	}
	s.db.MustExecSuper("UPDATE embedsidecar.history SET finished_at = finished_at - interval '2 hours' WHERE row_key IN ('3', '4')")
	s.db.MustExecSuper(`INSERT INTO embedsidecar.history (bucket, pipeline_id, row_key, outcome, attempt, committed_at, lsn)
		VALUES (7, 999, 'of one that is gone', 'embedded', 1, now(), '0/1')`)
	s.run(exitUsage, "tasks", "clear-history", "nothing")
	s.run(exitUsage, "tasks", "clear-history", "--older-than", "-1h")
	for _, c := range []struct{ got, want, left string }{
		{s.outcome("tasks", "clear-history", "docs", "--older-than", "1h", "--dry-run"), "history_would_be_cleared 2", ""},
		{s.outcome("tasks", "clear-history", "docs", "--older-than", "1h"), "history_cleared 2", ""},
		{s.outcome("tasks", "clear-history", "docs", "--older-than", "1h"), "nothing_to_clear 0", ""},
		{s.outcome("tasks", "clear-history"), "history_cleared 5", ""},
	} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
	if story := s.explained(0, "docs", "3"); len(story[0].History) != 0 || story[0].Verdict.Code != explain.Current {
		t.Errorf("%+v", story)
	}
	stdout, _ = s.run(0, "audit", "public.docs")
	s.has(stdout, "clear_history", "nothing_to_clear", "history_cleared")

	// Automatically, with a setting that applies while the sidecar runs.
	file := filepath.Join(t.TempDir(), "embedsidecar.yaml")
	configured := func(more string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("version: 1\n"+more+`
pipelines:
  - {name: public.docs, table: public.docs, columns: [title, body], into: {column: embedding}}
`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range []string{"{keep: 1s}", "{rows: 0}", "{rows: 20000001}", "{keep: for ever}"} {
		configured("history: " + bad)
		s.run(exitUsage, "config", "validate", "--config", file)
	}
	configured("")
	s.set("EMBEDSIDECAR_PLUGIN_FAULTS=")
	s.set("EMBEDSIDECAR_WORKERS_DIRECT=false")
	d := s.start("--config", file)
	s.run(0, "tasks", "retry", "docs")
	s.db.MustExec("INSERT INTO docs SELECT i, 'more ' || i, 'body' FROM generate_series(101, 1100) AS i")
	s.run(0, "wait", "--caught-up")
	s.db.MustExec("UPDATE docs SET title = 'the newest' WHERE id = 3")
	s.run(0, "wait", "--caught-up")
	if n := count(); len(n) < 4 {
		t.Errorf("%s tasks are told as finished", n)
	}
	configured("history: {rows: 100}")
	s.run(0, "reload", "--config", file)
	testenv.Eventually(t, waitTimeout, func() (bool, string) { return len(count()) < 4 && count() != "0", count() })
	if n := testenv.Value[int](s.db, "SELECT count(*) FROM embedsidecar.finished_tasks WHERE row_key = '3'"); n != 1 {
		t.Error("the newest is not kept")
	}
	d.end(syscall.SIGTERM, 0)
}
