package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// configured writes a configuration with these lines as its pipelines.
func (s *stage) configured(pipelines ...string) (file string) {
	s.t.Helper()
	file = filepath.Join(s.t.TempDir(), "embedsidecar.yaml")
	s.rewrite(file, pipelines...)
	return file
}

// rewrite replaces a configuration file, as editors do.
func (s *stage) rewrite(file string, pipelines ...string) {
	s.t.Helper()
	text := "version: 1\npipelines:\n"
	for _, p := range pipelines {
		text += "  - " + strings.ReplaceAll(strings.TrimSpace(p), "\n", "\n    ") + "\n"
	}
	if err := os.WriteFile(file+"~", []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(file+"~", file); err != nil {
		s.t.Fatal(err)
	}
}

// stands waits until a pipeline is in a state, and returns the pipeline.
func (s *stage) stands(name string, want health.Code) (found *report.Pipeline) {
	s.t.Helper()
	testenv.Eventually(s.t, waitTimeout, func() (bool, string) {
		list, err := report.Pipelines(s.t.Context(), s.db.Super())
		if err != nil {
			return false, err.Error()
		}
		said := ""
		for i := range list {
			p := &list[i]
			if p.Name == name && p.State == want {
				found = p
				return true, ""
			}
			said += p.Name + ": " + string(p.State) + ": " + p.Reason + "\n"
		}
		return false, said
	})
	return found
}

// TestP10_TheConfigurationIsStoredWhateverItsLetters: other sidecars and status read it from the database, whose
// encoding may lack some of them.
func TestP10_TheConfigurationIsStoredWhateverItsLetters(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, testenv.Encoding("LATIN1"))
	s.set("EMBEDSIDECAR_MODEL_DIR=/tmp/\u6a21\u578b")
	s.start(asBefore...)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		var n int
		err := s.db.Super().QueryRow(t.Context(), `SELECT count(*)::int FROM embedsidecar.configuration
			WHERE name = 'model_dir'`).Scan(&n)
		return err == nil && n == 1, fmt.Sprintf("%d rows: %v", n, err)
	})
}

// One sick pipeline does not stop the others. It says why, and is set up once what it lacks is there.
func TestRun_OneSickPipelineKeepsNoneFromStarting(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	s.db.MustExec("CREATE TABLE notes (id int PRIMARY KEY, body text); INSERT INTO notes VALUES (1, 'one')")
	s.db.MustExec("CREATE TABLE moved (id int PRIMARY KEY, body text); INSERT INTO moved VALUES (1, 'one')")
	s.db.MustExec("CREATE FUNCTION public.says(t text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT t'")
	const (
		docs   = "name: docs\ntable: public.docs\ncolumns: [title]\ninto: {table: docs_embedding}"
		notes  = "name: notes\ntable: public.notes\ntext: public.says(body)\ninto: {table: notes_embedding}"
		moved  = "name: moved\ntable: public.moved\ncolumns: [body]\ninto: {table: moved_embedding}"
		later  = "name: later\ntable: public.later\ncolumns: [body]\ninto: {table: later_embedding}"
		folder = "name: folder\ntable: public.docs\ncolumns: [body]\nmodel: /nowhere/model\ninto: {table: folder_embedding}"
		plugin = "name: plugin\ntable: public.docs\ncolumns: [body]\nplugin: nobody\ninto: {table: plugin_embedding}"
	)
	file := s.configured(docs, notes, moved)
	s.run(0, "run", "--once", "--config", file)
	s.db.MustExec("ALTER TABLE moved RENAME TO elsewhere; DROP FUNCTION public.says; UPDATE docs SET title = 'new'")

	s.rewrite(file, docs, notes, moved, later, folder, plugin)
	d := s.start("--config", file, "--ops-listen", "127.0.0.1:0")
	s.stands("docs", health.UpToDate)
	s.has(s.stands("notes", health.Misconfigured).Reason, "says")
	s.has(s.stands("moved", health.Otherwise).Health().String(), "elsewhere")
	p := s.stands("later", health.NotSetUp)
	s.has(p.Health().String(), "later")
	s.stands("folder", health.NotSetUp)
	s.stands("plugin", health.NotSetUp)
	stdout, _ := s.run(0, "status")
	s.has(stdout, "not set up", "configured otherwise")
	stdout, _ = s.run(exitFailed, "check", "--config", file)
	s.has(stdout, `pipeline "later"`)

	// A row of the healthy pipeline, and of the one that is configured differently.
	s.db.MustExec("INSERT INTO docs VALUES (4, 'four'); INSERT INTO elsewhere VALUES (2, 'two')")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		n := testenv.Value[int](s.db, "SELECT (SELECT count(*) FROM docs_embedding) * 10 + (SELECT count(*) FROM moved_embedding)")
		return n == 42, "vectors are missing"
	})
	s.db.MustExec("CREATE TABLE later (id int PRIMARY KEY, body text); INSERT INTO later VALUES (1, 'one')")
	s.stands("later", health.UpToDate)
	d.end(syscall.SIGTERM, 0)
}

// TestP5_AnEventTriggerStopsNothingThatIsSetUp: the trigger refuses the statements of each set-up. Pipelines that are
// set up as configured work on and report why they are not checked; they are checked when the trigger is gone.
func TestP5_AnEventTriggerStopsNothingThatIsSetUp(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	s.db.MustExec("CREATE TABLE notes (id int PRIMARY KEY, body text)")
	const (
		docs  = "name: docs\ntable: public.docs\ncolumns: [title]\ninto: {table: docs_embedding}"
		notes = "name: notes\ntable: public.notes\ntext: lower(body)\ninto: {table: notes_embedding}"
	)
	file := s.configured(docs, notes)
	s.run(0, "run", "--once", "--config", file)
	s.db.MustExecSuper(`CREATE FUNCTION public.refuse() RETURNS event_trigger LANGUAGE plpgsql AS
		$$BEGIN RAISE 'no % now', tg_tag; END$$`)
	s.db.MustExecSuper("CREATE EVENT TRIGGER refuse ON ddl_command_start EXECUTE FUNCTION public.refuse()")
	s.db.MustExec("UPDATE docs SET title = 'new'; INSERT INTO notes VALUES (1, 'one')")

	d := s.start("--config", file)
	s.has(s.stands("notes", health.Otherwise).Health().String(), "P0001")
	s.stands("docs", health.UpToDate) // plain columns need no statement that it refuses
	s.run(0, "wait", "--caught-up")
	s.run(0, "verify", "--deep", "10")
	s.db.MustExecSuper("DROP EVENT TRIGGER refuse")
	s.stands("notes", health.UpToDate)
	d.end(syscall.SIGTERM, 0)

	s.db.MustExecSuper("CREATE EVENT TRIGGER refuse ON ddl_command_start EXECUTE FUNCTION public.refuse()")
	s.rewrite(file, docs, strings.Replace(notes, "lower", "upper", 1)) // the change cannot be set up, an error
	_, stderr := s.run(1, "init", "--config", file)
	s.has(stderr, "notes", "P0001")
}

// TestP8_AColumnThatADeploymentGaveUpIsTakenUpAgain: a configuration without a pipeline removes it, and one with it
// brings it back. Only rows that changed are embedded again. An uninstall forgets the ledger.
func TestP8_AColumnThatADeploymentGaveUpIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t, 20)
	s.db.MustExec("ALTER TABLE docs ADD told vector(8)") // the user's own column, beside one that init makes
	const (
		docs   = "name: docs\ntable: public.docs\ncolumns: [body]\ninto: {table: docs_embedding}"
		titles = "name: titles\ntable: public.docs\ncolumns: [title]\ninto: {column: embedding}"
		told   = "name: told\ntable: public.docs\ncolumns: [title]\ninto: {column: told}"
	)
	file := s.configured(docs, titles, told)
	known := func(want int) {
		t.Helper()
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			n := testenv.Value[int](s.db, `SELECT count(*)::int FROM embedsidecar.ledger AS l WHERE NOT EXISTS
				(SELECT FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = l.pipeline_id)`)
			return n == want, fmt.Sprintf("%d entries of what is gone, want %d", n, want)
		})
	}
	d := s.start("--config", file)
	for range 2 { // by a running sidecar, and by a command without one
		if d != nil {
			s.stands("titles", health.UpToDate)
			s.stands("told", health.UpToDate)
		}
		s.rewrite(file, docs)
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			if d == nil {
				s.run(0, "apply", "--yes", "--config", file)
			}
			n := testenv.Value[int](s.db, "SELECT count(*)::int FROM embedsidecar.pipeline")
			return n == 1, fmt.Sprintf("%d pipelines", n)
		})
		known(40)
		if d != nil {
			d.end(syscall.SIGTERM, 0)
		}
		s.db.MustExec("UPDATE docs SET title = title || '!' WHERE id = 7; UPDATE docs SET embedding = NULL WHERE id = 8")
		s.rewrite(file, docs, titles, told)
		s.run(0, "run", "--once", "--config", file)
		s.run(0, "verify", "--deep", "20")
		for name, want := range map[string]int64{"titles": 1, "told": 1} {
			got := testenv.Value[int64](s.db, `SELECT coalesce(sum(s.texts_embedded), 0)::bigint
				FROM embedsidecar.pipeline AS p LEFT JOIN embedsidecar.spent AS s USING (pipeline_id) WHERE p.name = $1`, name)
			if got > want {
				t.Errorf("pipeline %s: %d texts were embedded again, want %d", name, got, want)
			}
		}
		d = nil
	}
	s.rewrite(file, docs)
	s.run(0, "apply", "--yes", "--config", file)
	known(40)
	for _, name := range []string{"titles", "told"} {
		s.run(0, "uninstall", name, "--yes")
		s.run(exitUsage, "uninstall", name, "--yes")
	}
	s.run(0, "run", "--once", "--config", file)
	known(0)
	s.rewrite(file, docs, titles)
	_, stderr := s.run(exitUsage, "init", "--config", file)
	s.has(stderr, "titles", "adopt")
}

// If no pipeline can run, the program ends and says why.
func TestRun_EndsWhereNoPipelineCanRun(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	_, stderr := s.run(exitUsage, "run", "--table", "gone", "--columns", "title", "--into-table", "gone_embedding")
	s.has(stderr, "ES0204")
}

// A configuration that is deployed alone applies, even an older one.
func TestRun_TheConfigurationThatRunsIsFollowed(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	as := func(columns string) []string {
		return []string{"--table", "docs", "--columns", columns, "--into-table", "docs_emb"}
	}
	once := func(columns string) { s.run(0, append([]string{"run", "--once"}, as(columns)...)...) }
	columns := func() string {
		return testenv.Value[string](s.db, "SELECT array_to_string(source_columns, ',') FROM embedsidecar.pipeline")
	}
	becomes := func(want string) {
		t.Helper()
		testenv.Eventually(t, waitTimeout, func() (bool, string) { return columns() == want, columns() })
	}
	once("title")
	once("title,body")
	once("title")
	if got := columns(); got != "title" {
		t.Fatalf("after A, B and A the text is of %s", got)
	}
	// Beside a sidecar with the newer configuration the older one waits and says so. When that sidecar has ended, it
	// applies.
	old := s.start(as("title")...)
	old.logged("streaming", "slot")
	young := s.start(as("body")...)
	becomes("body")
	s.has(s.stands("public.docs", health.Otherwise).Health().String(), "as in version 3 of its definition",
		"when none has for 30s, this one is followed")
	testenv.Eventually(t, waitTimeout, func() (bool, string) { // each sidecar stores its own state
		state := testenv.Value[string](s.db,
			"SELECT string_agg(state, ' ' ORDER BY state) FROM embedsidecar.configuration WHERE subject = 'pipeline'")
		return state == "configured_otherwise in_force", state
	})
	young.end(syscall.SIGTERM, 0)
	becomes("title")
	s.stands("public.docs", health.UpToDate)
	old.end(syscall.SIGTERM, 0)
	s.run(0, append([]string{"verify", "--deep", "3"}, as("title")...)...)
}

// The same holds if the newer sidecar ends before the others have noticed it: their configuration applies.
func TestRun_AConfigurationThatEndedAtOnceIsNotFollowed(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	as := func(columns string) []string {
		return []string{"--table", "docs", "--columns", columns, "--into-table", "docs_emb"}
	}
	becomes := func(want string) {
		t.Helper()
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			got := testenv.Value[string](s.db, "SELECT array_to_string(source_columns, ',') FROM embedsidecar.pipeline")
			return got == want, got
		})
	}
	old := s.start(as("title")...)
	old.logged("streaming", "slot")
	s.run(0, append([]string{"run", "--once"}, as("body")...)...)
	becomes("title")
	old.end(syscall.SIGTERM, 0)
}

// Two sidecars with contradicting files work on. The last change stays in force, whichever sidecar reloads or restarts;
// nothing flips back and forth, and the other sidecar reports its state.
func TestRun_FilesThatContradictEachOtherSettle(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	const title, body = liveDocs + "\npriority: low\nlabels: {of: one}",
		"name: docs\ntable: public.docs\ncolumns: [body]\npriority: high\nlabels: {of: other}\ninto: {table: docs_embedding}"
	one, other := s.configured(title), s.configured(body, liveBodies)
	rewrite := func(file string, rows int) { // with a setting that may differ
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text = []byte(strings.Split(string(text), "workers:")[0] + fmt.Sprintf("workers: {batch_rows: %d}\n", rows))
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			n := testenv.Value[int](s.db, fmt.Sprintf(`SELECT count(*)::int FROM embedsidecar.configuration
				WHERE name = 'workers.batch_rows' AND value = '%d'`, rows))
			return n == 1, "it is not taken over"
		})
	}
	old := s.start("--config", one)
	s.stands("docs", health.UpToDate)
	young := s.start("--config", other)
	s.stands("bodies", health.UpToDate)
	settled := func() {
		t.Helper()
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			got := testenv.Value[string](s.db, `SELECT concat_ws(' ', definition_version, array_to_string(source_columns, ','),
				priority, labels, (SELECT string_agg(state, ' ' ORDER BY state) FROM embedsidecar.configuration
					WHERE subject = 'pipeline')) FROM embedsidecar.pipelines WHERE pipeline = 'docs'`)
			return got == `2 body high {"of": "other"} configured_otherwise in_force in_force`, got
		})
	}
	settled()
	for i := range 2 {
		rewrite(one, 10+i)
		settled()
		rewrite(other, 20+i)
		settled()
		old.end(syscall.SIGTERM, 0)
		old = s.start("--config", one)
		old.logged("pipeline started", "pipeline")
		settled()
		young.end(syscall.SIGKILL, -1)
		young = s.start("--config", other)
		young.logged("pipeline started", "pipeline")
		settled()
	}
	old.end(syscall.SIGTERM, 0)
	young.end(syscall.SIGTERM, 0)
	s.run(0, "verify", "--deep", "3", "--config", other)
}
