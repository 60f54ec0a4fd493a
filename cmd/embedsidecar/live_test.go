package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

const (
	liveDocs   = "name: docs\ntable: public.docs\ncolumns: [title]\ninto: {table: docs_embedding}"
	liveBodies = "name: bodies\ntable: public.docs\ncolumns: [body]\ninto: {table: bodies_embedding}"
)

// A pipeline that is removed while a sidecar has it in its file stops working, which is reported. A reload sets it up
// again.
func TestP10_APipelineThatWasTakenAwayIsToldOf(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	file := s.configured(liveDocs, liveBodies)
	d := s.start("--config", file)
	s.stands("bodies", health.UpToDate)
	for range 2 { // the second time is the same
		s.run(0, "uninstall", "bodies", "--yes")
		s.stands("bodies", health.NotSetUp)
		planned := testenv.Value[string](s.db, "SELECT string_agg(concat_ws(' ', name, detail), ' ') FROM embedsidecar.plan()")
		s.has(planned, "bodies", "it was removed")
		s.db.MustExec("INSERT INTO docs SELECT max(id) + 1, 'new', 'new' FROM docs")
		s.run(0, "reload", "--config", file)
		s.stands("bodies", health.UpToDate)
	}
	s.vectorsOf("bodies_embedding", 5)
	s.run(0, "uninstall", "bodies", "--yes")
	s.stands("bodies", health.NotSetUp)
	s.run(0, "apply", "--yes", "--config", file) // or another command
	s.stands("bodies", health.UpToDate)
	d.end(syscall.SIGTERM, 0)
}

// A file that changes while the server is away, as during a restart, is not refused: it is applied when the server is
// back.
func TestP2_AFileThatChangesWhileTheServerIsAway(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	proxy := testenv.StartProxy(t, s.db.Server.Addr())
	s.at(s.db.URLVia(proxy.Addr(), testenv.Owner) + "&connect_timeout=300")
	file := s.configured(liveDocs)
	d := s.start("--config", file)
	s.stands("docs", health.UpToDate)
	proxy.Refuse()
	proxy.Cut()
	s.rewrite(file, liveDocs, liveBodies)
	d.logged("configuration refused: the one before stays in force", "error")
	if err := proxy.Accept(); err != nil {
		t.Fatal(err)
	}
	s.stands("bodies", health.UpToDate)
	testenv.Eventually(t, waitTimeout, func() (bool, string) { // and the refusal is no longer reported
		n := testenv.Value[int](s.db, "SELECT count(*)::int FROM embedsidecar.configuration WHERE state = 'refused'")
		return n == 0, "the file counts as refused"
	})
	d.end(syscall.SIGTERM, 0)
}

// A changed file is applied while the sidecar runs: pipelines are added, changed and removed. A bad file changes
// nothing, and is reported everywhere.
func TestRun_AChangedFileIsTakenOver(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	file := s.configured(liveDocs)
	d := s.start("--config", file)
	s.stands("docs", health.UpToDate)
	rows := func(table string, want int) {
		t.Helper()
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			n := testenv.Value[int](s.db, "SELECT count(*)::int FROM "+table)
			return n == want, table + " has other rows"
		})
	}
	s.rewrite(file, liveDocs, liveBodies)
	s.stands("bodies", health.UpToDate)
	rows("bodies_embedding", 3)

	// A changed pipeline, and limits, for which the sidecar restarts in the same process.
	pid := d.cmd.Process.Pid
	s.rewrite(file, strings.Replace(liveDocs, "columns: [title]", "columns: [title]\nwhere: id > 1", 1), liveBodies)
	rows("docs_embedding", 2)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(text, "workers: {batch_rows: 7}\nretry: {max_attempts: 3}\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	d.logged("restarting the sidecar with the new configuration", "msg")
	s.db.MustExec("INSERT INTO docs VALUES (4, 'four', 'four')")
	rows("docs_embedding", 3)
	rows("bodies_embedding", 4)

	// A mistake: the old configuration stays in force, and the refusal is reported everywhere.
	s.rewrite(file, liveDocs, liveBodies, strings.Replace(liveDocs, "name: docs", "name: more\nwrong: 1", 1))
	s.refused(d, "wrong")
	s.rewrite(file, liveDocs, liveBodies, "name: gone\ntable: public.gone\ncolumns: [body]\ninto: {table: gone_embedding}")
	s.refused(d, "gone")
	if os.Remove(file) != nil || os.Mkdir(file, 0o700) != nil {
		t.Fatal("the file is not replaced")
	}
	s.refused(d, "directory")
	s.db.MustExec("INSERT INTO docs VALUES (5, 'five', 'five')")
	rows("bodies_embedding", 5)
	rows("docs_embedding", 4) // as before, except row 1

	// A pipeline that is taken out is removed, and its vectors stay.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	s.rewrite(file, liveDocs)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		n := testenv.Value[int](s.db, "SELECT count(*)::int FROM embedsidecar.pipeline")
		return n == 1, "the pipeline is still there"
	})
	rows("docs_embedding", 5)
	rows("bodies_embedding", 5)
	embedded := "SELECT tokens_embedded FROM embedsidecar.status WHERE pipeline = 'bodies'"
	s.rewrite(file, liveDocs, liveBodies) // and is set up again without embedding
	s.stands("bodies", health.UpToDate)
	if n := testenv.Value[int64](s.db, embedded); n != 0 {
		t.Errorf("%d tokens were embedded again", n)
	}
	actions := testenv.Value[string](s.db,
		"SELECT string_agg(DISTINCT action || ' ' || result, ', ' ORDER BY action || ' ' || result) FROM embedsidecar.audit")
	s.has(actions, "reload done", "reload refused")
	if d.cmd.Process.Pid != pid {
		t.Error("it is another process")
	}
	d.end(syscall.SIGTERM, 0)
	s.run(0, "verify", "--deep", "10", "--config", file)
}

// A pipeline whose table is gone does not block changes of others.
func TestRun_ASickPipelineKeepsNoChangeOfOthersBack(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	s.db.MustExec("CREATE TABLE notes (id int PRIMARY KEY, body text)")
	notes := strings.ReplaceAll(strings.Replace(liveBodies, "public.docs", "public.notes", 1), "bodies", "notes")
	file := s.configured(liveDocs, notes)
	d := s.start("--config", file)
	s.stands("notes", health.UpToDate)
	s.db.MustExec("DROP TABLE notes")
	s.stands("notes", health.Missing)
	s.rewrite(file, liveDocs, notes, liveBodies)
	s.stands("bodies", health.UpToDate)
	d.end(syscall.SIGTERM, 0)
}

// A file that changes while the sidecar starts is applied, too.
func TestRun_AFileThatChangesDuringTheStartIsTakenOver(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	if err := testenv.Migrate(t.Context(), s.db.Pool); err != nil {
		t.Fatal(err)
	}
	goOn := s.open(asInit)
	file := s.configured(liveDocs)
	d := s.start("--config", file)
	d.logged("waiting for another set-up", "reason")
	s.rewrite(file, liveDocs, liveBodies)
	goOn()
	s.stands("bodies", health.UpToDate)
	d.end(syscall.SIGTERM, 0)
}

// New limits apply while the sidecar runs: work that they held back continues at once.
func TestRun_LimitsAreTakenOver(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3000)
	file := s.configured(liveDocs)
	free, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write := func(more string) {
		t.Helper()
		if err := os.WriteFile(file, append(slices.Clip(free), more...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("limits: {backfill_rows_per_second: 1}\n") // at which it would take fifty minutes
	d := s.start("--config", file)
	count := func() int { return testenv.Value[int](s.db, "SELECT count(*)::int FROM docs_embedding") }
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		there := testenv.Value[bool](s.db, "SELECT to_regclass('docs_embedding') IS NOT NULL")
		return there && count() > 0, "nothing is embedded"
	})
	write("")
	d.logged("configuration taken over", "changed")
	testenv.Eventually(t, waitTimeout, func() (bool, string) { return count() == 3000, "it is held back" })
	write("limits: {rows_per_second: 1}\n")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		n := testenv.Value[int](s.db, "SELECT count(*)::int FROM embedsidecar.configuration WHERE name = 'limits.rows_per_second'")
		return n == 1, "the limit is not in force"
	})
	s.db.MustExec("UPDATE docs SET title = title || '!'")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		list, err := report.Pipelines(t.Context(), s.db.Super())
		if err != nil || len(list) != 1 {
			return false, "no state"
		}
		return strings.Contains(list[0].Reason, "limits.rows_per_second"), list[0].Reason
	})
	d.end(syscall.SIGTERM, 0)
}

// A changed ignore rule is priced in a warning for the rows that it embeds again, and for no others.
func TestPlan_AChangedIgnoreIsPricedOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	counting := liveDocs + "\nignore: lower(text)"
	d := s.start("--config", s.configured(counting))
	s.stands("docs", health.UpToDate)
	s.db.MustExec("UPDATE docs SET title = upper(title) WHERE id = 1")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		n := testenv.Value[int](s.db, "SELECT count(*)::int FROM embedsidecar.ledger WHERE ignored")
		return n == 1, "the edit counts"
	})
	other := s.configured(liveDocs)
	stdout, _ := s.run(0, "plan", "--config", other, "-o", "json")
	told := decoded[control.Configured](t, stdout)
	if len(told.Costs) != 0 || !strings.Contains(strings.Join(told.Warnings, "\n"), "last edit was ignored: 1") {
		t.Errorf("plan: %+v", told)
	}
	d.end(syscall.SIGTERM, 0)
}

// The stored configuration is restored if it is lost, and that of sidecars that ended long ago is deleted.
func TestRun_TheConfigurationIsWrittenDownForAsLongAsItIsInForce(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	d := s.start("--config", s.configured(liveDocs))
	s.stands("docs", health.UpToDate)
	s.db.MustExec(`DELETE FROM embedsidecar.configured;
		INSERT INTO embedsidecar.configured (slot_name, instance, session_name, loaded_at)
		SELECT 's', name, name, now() - age::interval FROM (VALUES ('old', '2 days'), ('new', '1 minute')) AS v (name, age)`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		names := testenv.Value[string](s.db, `SELECT string_agg(coalesce(nullif(digests, '{}') ->> 'docs', instance), ' ')
			FROM embedsidecar.configured`)
		return !strings.Contains(names, "old") && strings.Count(names, " ") == 1, names
	})
	d.end(syscall.SIGTERM, 0)
}

// refused waits until every door reports that the configuration is refused, with a reason that contains a word.
func (s *stage) refused(d *daemon, word string) {
	s.t.Helper()
	testenv.Eventually(s.t, waitTimeout, func() (bool, string) {
		why := testenv.Value[string](s.db, `SELECT coalesce((SELECT reason FROM embedsidecar.configuration
			WHERE subject = 'file' AND state = 'refused'), '')`)
		return strings.Contains(why, word), why
	})
	if got := testenv.Value[string](s.db, "SELECT state FROM embedsidecar.plan() WHERE subject = 'file'"); got != "refused" {
		s.t.Errorf("embedsidecar.plan() says %q", got)
	}
	stdout, _ := s.run(0, "status")
	s.has(stdout, "configuration", word)
	d.logged("configuration refused: the one before stays in force", "error") // after the database has been told
}

// plan shows what a file would change, and apply does it. A running sidecar applies it on a command or over HTTP.
func TestApply_DoesWhatPlanShows(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	folder := filepath.Join(t.TempDir(), "control")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	s.set("EMBEDSIDECAR_CONTROL_DIR=" + folder)
	file := s.configured(liveDocs)
	plan := func(args ...string) control.Configured {
		stdout, _ := s.run(0, append(append([]string{"plan", "-o", "json"}, args...), "--config", file)...)
		return decoded[control.Configured](t, stdout)
	}
	told := plan()
	if told.State != control.Planned || len(told.Costs) != 1 || told.Costs[0].Texts != 3 || len(told.Steps) == 0 {
		t.Fatalf("%+v", told)
	}
	if testenv.Value[bool](s.db, "SELECT to_regclass('embedsidecar.pipeline') IS NOT NULL") {
		t.Fatal("a plan has set something up")
	}
	_, stderr := s.run(0, "apply", "--config", file)
	s.has(stderr, "nothing was changed: run it with --yes")
	s.run(0, "apply", "--config", file, "--yes")
	told = plan()
	if len(told.Steps) != 0 || len(told.Removed) != 0 || told.State != control.Unchanged {
		t.Errorf("after it was applied: %+v", told)
	}
	// Both report an obstacle with its exit status.
	nowhere := s.configured(strings.Replace(liveDocs, "public.docs", "public.nowhere", 1))
	for _, command := range []string{"plan", "apply"} {
		_, stderr := s.run(exitUsage, command, "--config", nowhere)
		s.has(stderr, "nowhere")
		stdout, _ := s.run(exitUsage, command, "--config", nowhere, "-o", "json")
		if told := decoded[control.Configured](t, stdout); told.State != control.Refused || told.Reason == "" {
			t.Errorf("%s: %+v", command, told)
		}
	}
	s.run(exitUsage, "plan", "--config", s.configured("name: docs\nwrong: 1"))
	s.rewrite(file, liveBodies)
	told = plan()
	if len(told.Removed) != 1 || told.Removed[0] != "docs" || len(told.Lost) != 1 || len(told.Costs) != 1 {
		t.Errorf("%+v", told)
	}
	s.run(0, "apply", "--config", file, "--yes")
	audit := testenv.Value[string](s.db, "SELECT string_agg(action, ' ' ORDER BY audit_id) FROM embedsidecar.audit")
	s.has(audit, "apply")

	tokens := filepath.Join(t.TempDir(), "tokens")
	secret, _ := s.run(0, "token", "create", "ops", "--role", "admin", "--tokens-file", tokens)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write := func(more string) {
		t.Helper()
		if err := os.WriteFile(file, append(slices.Clone(text), more...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("log: {level: info}\n")
	d := s.start("--config", file, "--admin-listen", "127.0.0.1:0", "--tokens-file", tokens)
	door := &doors{
		stage: s, token: strings.TrimSpace(secret),
		base: "http://" + d.logged("administrators are answered", "address") + "/api/v1",
	}
	s.stands("bodies", health.UpToDate)
	answers := func(method, path string, want string) (told control.Configured) {
		t.Helper()
		body := door.ask(method, path, "")
		if err := json.Unmarshal([]byte(body), &told); err != nil || told.State != want {
			t.Errorf("%s %s: %s, want %s", method, path, body, want)
		}
		return told
	}
	answers(http.MethodGet, "/plan", control.Unchanged)
	answers(http.MethodPost, "/reload", control.Unchanged)
	stdout, _ := s.run(0, "reload", "-o", "json")
	s.has(stdout, `"unchanged"`)
	// Settings that need a restart are named, and all others are applied.
	write("log: {level: debug}\nthreads: 1\n")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		list := testenv.Value[string](s.db, `SELECT coalesce(string_agg(name, ' '), '') FROM embedsidecar.plan()
			WHERE state = 'needs_restart'`)
		return list == "log.level", list
	})
	// One that was taken out is named, too, whatever path leads to the file.
	write("threads: 1\n")
	stdout, _ = s.run(0, "plan", "-o", "json", "--config", filepath.Dir(file)+"/./"+filepath.Base(file))
	if told := decoded[control.Configured](t, stdout); !slices.Equal(told.NeedsRestart, []string{"log.level"}) {
		t.Errorf("without the line: %+v", told)
	}
	s.run(0, "uninstall", "bodies", "--yes")
	s.has(testenv.Value[string](s.db, "SELECT string_agg(action, ' ' ORDER BY audit_id) FROM embedsidecar.audit"),
		"uninstall", "reload")
	d.end(syscall.SIGTERM, 0)
}
