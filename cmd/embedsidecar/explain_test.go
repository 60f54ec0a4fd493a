package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/manage/explain"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/search/query"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// explained returns the output of explain for rows, with a wanted exit status.
func (s *stage) explained(status int, args ...string) []explain.Story {
	s.t.Helper()
	stdout, _ := s.run(status, append([]string{"explain", "-o", "json"}, args...)...)
	return decoded[map[string][]explain.Story](s.t, stdout)["rows"]
}

// ends fails the test unless rows have these verdicts.
func (s *stage) ends(list []explain.Story, want ...explain.Code) {
	s.t.Helper()
	got := make([]explain.Code, len(list))
	for i := range list {
		got[i] = list[i].Verdict.Code
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		s.t.Errorf("verdicts %v, want %v: %+v", got, want, list)
	}
}

// twoPipelines makes pipelines into a column, and into a table with a filter and a key of two columns.
const twoPipelines = `version: 1
pipelines:
  - {name: docs, table: public.docs, columns: [title, body], into: {column: embedding}}
  - name: events
    table: public.events
    text: (payload::jsonb) ->> 't'
    where: b <> 'out'
    into: {table: events_embedding}
`

// TestP10_ExplainTellsARowsStory: rows that are well, empty, filtered out, given up, unreadable, changed or deleted
// while no sidecar runs, pending, and unknown. The sidecar's role may run explain, which shows no text of a row.
func TestP10_ExplainTellsARowsStory(t *testing.T) {
	t.Parallel()
	s := newStage(t, 5)
	s.secrets = append(s.secrets, "POISON", "a text that nobody may see")
	s.db.MustExec("UPDATE docs SET body = 'a text that nobody may see' WHERE id = 1")
	s.db.MustExec("UPDATE docs SET body = 'POISON' WHERE id = 3")
	s.db.MustExec("UPDATE docs SET title = NULL, body = '' WHERE id = 4")
	s.db.MustExec(`CREATE TABLE events (a int, b text, payload text, PRIMARY KEY (a, b));
		INSERT INTO events VALUES (1, 'x|y', '{"t": "one"}'), (2, 'out', '{"t": "two"}'), (3, 'x', '{"t": "three"}')`)
	file := filepath.Join(t.TempDir(), "embedsidecar.yaml")
	if err := os.WriteFile(file, []byte(twoPipelines), 0o600); err != nil {
		t.Fatal(err)
	}
	s.set("EMBEDSIDECAR_PLUGIN_FAULTS=refuse-on=POISON")
	s.run(exitFailed, "run", "--once", "--set", "retry.max_attempts=1", "--config", file)
	s.set("EMBEDSIDECAR_PLUGIN_FAULTS=")
	owner, role := s.environ, s.db.Role("")
	script, _ := s.run(0, "roles", "--role", role, "--stream-role", s.db.Role("REPLICATION"))
	s.db.MustExecSuper(script)
	s.as(role)

	list := s.explained(0, "docs", "1", "4", "3", "01")
	s.ends(list, explain.Current, explain.Empty, explain.DeadLetter, explain.Current)
	one, dead, again := &list[0], &list[2], &list[3]
	if l := one.Ledger; l == nil || l.TextHash != one.Row.TextHash || !l.SourceAgrees || !l.TextAgrees ||
		l.Generation != 1 || l.LSN == "" || !one.Vector.Ours || one.Vector.AtLeastSeconds == nil || one.Task != nil ||
		len(one.History) == 0 ||
		one.History[0].Outcome != "embedded" || one.Row.Characters == nil ||
		*one.Row.Characters != len("title 1\n\na text that nobody may see") || one.Row.Text != nil {
		t.Errorf("a row that is well: %+v", one)
	}
	if again.Key != "1" || again.AskedAs != "01" {
		t.Errorf("another spelling: %+v", again)
	}
	if d := dead.Task; d == nil || d.State != "failed" || d.Class != "data" || d.Code == "" || d.Attempt != 1 ||
		d.LastLSN == "" || d.CreatedAt.IsZero() {
		t.Errorf("a dead letter: %+v", dead)
	}
	s.ends(s.explained(0, "events", `1|x\|y`, "2|out", "3|x"), explain.Current, explain.Filtered, explain.Current)
	if got := s.explained(0, "docs", "2", "--tokens")[0].Row.Tokens; got == nil || got.Count < 2 || got.Truncated {
		t.Errorf("tokens of a row: %+v", got)
	}
	s.sameStoryBySQL()
	s.toldToAgents()
	stdout, stderr := s.run(exitNoMatch, "explain", "docs", "2", "nobody", "99")
	s.has(stdout, "docs, row 2\n", "its text has 15 characters", "the vector matches the row's current text.",
		"docs, row nobody\n", "the row does not exist, and nothing is left of it.")
	s.has(stderr, `knows no row with the key "nobody", "99"`)
	s.ends(s.explained(exitNoMatch, "events", "1"), explain.Gone)

	// While no sidecar runs, one row changes, one is deleted, and the text of one fails.
	s.db.MustExec(`UPDATE docs SET body = 'new' WHERE id = 2; DELETE FROM docs WHERE id = 5;
		UPDATE events SET payload = 'no json' WHERE a = 3`)
	list = s.explained(0, "docs", "2", "5")
	s.ends(list, explain.NotAtWork, explain.NotAtWork)
	s.has(list[0].Verdict.String(), "text has changed since its vector was made", "no sidecar runs", "embedsidecar run")
	s.has(list[1].Verdict.String(), "the row is deleted")
	if list[0].State.Code != health.NoSidecar || list[0].State.Checkpoint == "" {
		t.Errorf("%+v", list[0].State)
	}
	list = s.explained(0, "events", "3|x")
	s.ends(list, explain.Unreadable)
	s.has(list[0].Verdict.String(), "SQLSTATE 22P02")

	// It is queued, and waits until the pipeline is resumed.
	s.environ = owner
	s.run(0, "pause", "docs")
	d := s.start("--no-init")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		list = s.explained(0, "docs", "2")
		return list[0].Task != nil, list[0].Verdict.String()
	})
	s.ends(list, explain.NotAtWork)
	s.has(list[0].Verdict.String(), "paused", "embedsidecar resume")
	s.waitsBehind()
	if w := list[0].Task; w.State != "todo" || w.Lane != "normal" || !w.Visible || w.CommittedAt.IsZero() {
		t.Errorf("what waits: %+v", w)
	}
	s.tellsWhoLocks()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		list = s.explained(0, "docs", "2", "5")
		return list[0].Verdict.Code == explain.Current && list[1].Verdict.Code == explain.Gone, fmt.Sprintf("%+v", list)
	})
	if h := list[1].History; len(h) == 0 || h[0].Outcome != "removed" {
		t.Errorf("a row that is gone: %+v", list[1])
	}
	s.tellsWhatWasSpared()
	s.tellsWhoWorks()
	d.end(syscall.SIGTERM, 0)
	if text := s.explained(0, "docs", "2", "--text")[0].Row.Text; text == nil || *text != "title 2\n\nnew" {
		t.Errorf("the text that was asked for: %v", text)
	}
}

// toldToAgents checks what an agent is told of a row with a task.
func (s *stage) toldToAgents() {
	s.t.Helper()
	b := query.New(query.Options{Config: &config.Config{}, Database: true})
	b.Follow(nil, s.db.Pool)
	told, err := b.Explain(s.t.Context(), &pipeline.Pipeline{Spec: pipeline.Spec{Name: "docs"}}, "3")
	if err != nil || told.Verdict != explain.DeadLetter || !strings.Contains(told.Sentence, "its operator can see why") {
		s.t.Errorf("told to an agent: %+v, %v", told, err)
	}
}

// TestTrust_APastedKeyIsNoFlag: a suggested command for a row acts on that row even if its key looks like a flag.
func TestTrust_APastedKeyIsNoFlag(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0)
	s.db.MustExec(`CREATE TABLE notes (id text PRIMARY KEY, body text)`)
	s.db.MustExec(`INSERT INTO notes VALUES ('--yes', 'one'), ('--database-url=postgres://lair/x', 'two'), ('3', 'three')`)
	file := s.configured("name: notes\ntable: public.notes\ncolumns: [body]\ninto: {table: notes_embedding}")
	s.run(0, "init", "--config", file)
	s.db.MustExec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, state, lane, xid, first_lsn, last_lsn, committed_at)
		SELECT pipeline_id, id, 'cancelled', 1, '3', '0/1', '0/1', now() FROM embedsidecar.pipeline, notes`)
	for _, key := range []string{"--yes", "--database-url=postgres://lair/x"} {
		stdout, _ := s.run(0, "explain", "--config", file, "notes", "--", key)
		_, line, _ := strings.Cut(stdout, "Next: embedsidecar ")
		line, _, _ = strings.Cut(line, "\n")
		words := strings.Fields(strings.ReplaceAll(line, "'", ""))
		if len(words) < 4 || words[0] != "tasks" || words[1] != "requeue" {
			t.Fatalf("the line for %s is %q", key, line)
		}
		stdout, _ = s.run(0, append([]string{"tasks", "requeue", "--config", file, "-o", "json"}, words[2:]...)...)
		s.has(stdout, `"rows": 1`)
	}
}

// waitsBehind: of two pending rows, one is reported to be behind the other, also by SQL.
func (s *stage) waitsBehind() {
	t := s.t
	t.Helper()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		list := s.explained(0, "docs", "2", "5")
		told := list[0].Task != nil && list[1].Task != nil && list[0].Task.Ahead+list[1].Task.Ahead == 1
		return told, fmt.Sprintf("%+v", list)
	})
	stdout, _ := s.run(0, "explain", "docs", "2", "5")
	s.has(stdout, "waits behind 1 other in lane normal", "waits with none before it in lane normal")
	if n := testenv.Value[int](s.db, `SELECT count(*) FROM unnest('{2,5}'::text[]) AS k (key), embedsidecar.explain('docs', k.key) AS e
		WHERE e.topic = 'queue' AND e.sentence LIKE '%waits behind 1 other in lane normal.%'`); n != 1 {
		t.Errorf("by SQL %d rows wait behind another", n)
	}
}

// tellsWhatWasSpared: a row with the text of another row shares its vector, and a rescan of an unchanged row does
// nothing. Both are reported.
func (s *stage) tellsWhatWasSpared() {
	t := s.t
	t.Helper()
	s.run(0, "pause", "docs") // so that it goes through the queue, which has a history
	s.db.MustExec(`INSERT INTO docs (id, title, body) SELECT 6, title, body FROM docs WHERE id = 1`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) { return s.explained(0, "docs", "6")[0].Task != nil, "" })
	s.run(0, "tasks", "requeue", "docs", "1")
	s.run(0, "resume", "docs")
	for key, want := range map[string]string{"6": "reused", "1": "unchanged"} {
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			stdout, _ := s.run(0, "explain", "docs", "1", "6")
			list := s.explained(0, "docs", key)
			told := len(list[0].History) > 0 && list[0].History[0].Outcome == want
			return told && strings.Contains(stdout, "(its vector was known"), stdout
		})
		told := testenv.Value[string](s.db, `SELECT sentence FROM embedsidecar.explain('docs', $1) WHERE topic = 'history'`, key)
		s.has(told, "the latest first: "+want+" ")
	}
}

// tellsWhoWorks: the running sidecar, as its role may see it.
func (s *stage) tellsWhoWorks() {
	t := s.t
	t.Helper()
	stdout, _ := s.run(0, "status", "-o", "json")
	list := decoded[observe.Database](t, stdout).Sidecars
	if len(list) != 1 || list[0].Stream != health.Streaming || list[0].Version == "" || list[0].Instance == "" {
		t.Errorf("who works: %+v", list)
	}
}

// tellsWhoLocks: row 2 has changed, and another session locks it before its pipeline is resumed.
func (s *stage) tellsWhoLocks() {
	t := s.t
	t.Helper()
	tx, err := s.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	var pid int
	if err := tx.QueryRow(t.Context(), "SELECT pg_backend_pid() FROM docs WHERE id = 2 FOR UPDATE").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	s.run(0, "resume", "docs")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		w := s.explained(0, "docs", "2")[0].Task
		told := w != nil && len(w.LockedBy) == 1 && strings.HasPrefix(w.LockedBy[0], fmt.Sprintf("pid %d, ", pid))
		return told, fmt.Sprintf("%+v", w)
	})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// sameStoryBySQL: SQL returns the same, except for what only a read of the row can tell.
func (s *stage) sameStoryBySQL() {
	s.t.Helper()
	for key, want := range map[string]explain.Code{
		"1": explain.Current, "3": explain.DeadLetter, "4": "no_text", "99": "unknown",
	} {
		if got := testenv.Value[string](s.db, `SELECT facts ->> 'verdict' FROM embedsidecar.explain('docs', $1) WHERE topic = 'verdict'`, key); got != string(want) {
			s.t.Errorf("row %s by SQL: %s, want %s", key, got, want)
		}
	}
}
