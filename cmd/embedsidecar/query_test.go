package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestSearch_OverAnIndexThatIsBuiltAfterTheBackfill(t *testing.T) {
	t.Parallel()
	s := newStage(t, 50)
	s.once(0, "--set", "pipelines[0].into.type=halfvec", "--index", "hnsw")
	index := testenv.Value[string](s.db,
		"SELECT indexdef FROM pg_indexes WHERE tablename = 'docs' AND indexdef LIKE '%hnsw%'")
	s.has(index, "halfvec_cosine_ops")
	s.run(0, "verify", "--deep", "50")

	stdout, _ := s.run(0, "search", "public.docs", "title 7", "--hybrid", "-k", "3", "--filter", "id=7", "-o", "json")
	hits := decoded[[]search.Hit](t, stdout)
	if len(hits) != 1 || hits[0].Key != "7" || hits[0].Score == nil {
		t.Errorf("found %+v", hits)
	}
	stdout, _ = s.run(0, "search", "public.docs", "title 7", "--hybrid")
	s.has(stdout, "KEY", "SCORE", "DISTANCE", "TEXT")
	stdout, _ = s.run(0, "search", "public.docs", "title 7", "--hybrid", "--explain")
	s.has(stdout, "WITH embedsidecar_nearest", "Limit", "CREATE INDEX CONCURRENTLY")
	stdout, _ = s.run(0, "search", "public.docs", "--like", "7", "-k", "2", "-o", "json")
	if hits := decoded[[]search.Hit](t, stdout); len(hits) != 2 || hits[0].Key == "7" || hits[1].Key == "7" {
		t.Errorf("similar to 7: %+v", hits)
	}
	s.run(9, "search", "public.docs", "--like", "999")
	_, stderr := s.run(2, "search", "public.docs", "--like", "seven")
	s.has(stderr, "does not fit its type")
	for _, wrong := range [][]string{{}, {"x", "--like", "7"}, {"--like", "7", "--hybrid"}} {
		s.run(2, append([]string{"search", "public.docs"}, wrong...)...)
	}
	_, stderr = s.run(2, "search", "public.docs", "x", "--filter", "nope=1")
	s.has(stderr, `no column "nope"`)
	_, stderr = s.run(2, "search", "public.docs", "--like", "7", "--filter", "titel=1")
	s.has(stderr, `no column "titel"`, "hint: did you mean title?")
	_, stderr = s.run(0, "search", "public.docs", "x", "--filter", "id=999")
	s.has(stderr, "no row was found", "embedsidecar status")
	_, stderr = s.run(2, "search", "public.docs", "x", "--filter", "nope")
	s.has(stderr, "COLUMN=VALUE")
	_, stderr = s.run(2, "serve", "--http", "127.0.0.1:0")
	s.has(stderr, "--tokens-file", "--no-auth")
	_, stderr = s.run(2, "serve", "--http", "0.0.0.0:0", "--no-auth")
	s.has(stderr, "everyone who reaches that address")
	_, stderr = s.once(2, "--set", "pipelines[0].into.type=circle")
	s.has(stderr, "sparsevec")
}

// TestSearch_AsksTheSidecarThatRuns: with a running sidecar the command embeds nothing itself. Its own plugin cannot
// start.
func TestSearch_AsksTheSidecarThatRuns(t *testing.T) {
	t.Parallel()
	s := newStage(t, 5)
	s.run(0, "init", "--table", "docs", "--columns", "title,body", "--into", "embedding")
	d := s.start("--no-init")
	s.run(0, "wait", "--caught-up")
	s.set("EMBEDSIDECAR_PLUGIN_FAULTS=exit-at-start") // for new processes
	found := func(text string) ([]search.Hit, error) {
		out, err := s.command("search", "public.docs", text, "-k", "1", "-o", "json").Output()
		if err != nil {
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				err = fmt.Errorf("%w: %s", err, exit.Stderr)
			}
			return nil, err
		}
		return decoded[[]search.Hit](t, string(out)), nil
	}
	var hits []search.Hit
	testenv.Eventually(t, waitTimeout, func() (bool, string) { // on a busy machine the sidecar may answer too late
		var err error
		hits, err = found("title 4\n\nbody 4")
		return err == nil, fmt.Sprint(err)
	})
	if len(hits) != 1 || hits[0].Key != "4" || *hits[0].Distance > 1e-6 {
		t.Errorf("found %+v", hits)
	}
	d.end(syscall.SIGTERM, 0)
	if hits, err := found("a text that nobody asked for"); err == nil || !strings.Contains(err.Error(), "fake") {
		t.Errorf("without a sidecar, and with a plugin that cannot start: %+v, %v", hits, err)
	}
}

// TestSearch_BySQLSaysWhyNobodyAnswers: a session that waited in vain for a vector gets the reason that the sidecar's
// log and status have. No other session gets it.
func TestSearch_BySQLSaysWhyNobodyAnswers(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		s := newStage(t, 5, testenv.Major(major))
		s.run(0, "init", "--pipeline", "docs: title,body -> embedding")
		s.set("EMBEDSIDECAR_PLUGIN_FAULTS=describe-hangs")
		d := s.start("--no-init")
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			n := testenv.Value[int](s.db, `SELECT count(*) FROM embedsidecar.workers AS w, jsonb_each(w.problems) AS p
				WHERE p.value ->> 'detail' LIKE '%it is being started%'`)
			return n == 1, d.text()
		})
		sql := []string{"CALL embedsidecar.ask('docs', 'a text', '1 s')"}
		if major >= 17 {
			sql = append(sql, "SELECT * FROM embedsidecar.search('docs', 'a text', timeout => '1 s')",
				"SELECT embedsidecar.embed('a text', 'docs', '1 s')")
		} else if _, err := s.db.Pool.Exec(t.Context(), "SELECT embedsidecar.embed('a text', 'docs', '1 s')"); err == nil ||
			!strings.Contains(err.Error(), "CALL embedsidecar.ask(pipeline, content) first") { // not every client shows a hint
			t.Errorf("an older server: %v", err)
		}
		for _, ask := range sql {
			_, err := s.db.Pool.Exec(t.Context(), ask)
			if err == nil || !strings.Contains(err.Error(), "no answer within") ||
				!strings.Contains(err.Error(), "it is being started") {
				t.Errorf("%s: %v", ask, err)
			}
		}
		if n := testenv.Value[int](s.db, "SELECT count(*) FROM embedsidecar.answer"); n > 0 {
			t.Errorf("%d answers are there, to which others may come", n)
		}
		d.end(os.Interrupt, 0)
	})
}

// TestSearch_WithTheRightsOfAnApplication: a role that may search by SQL may search here. If a right is missing, it
// gets the statement that grants it.
func TestSearch_WithTheRightsOfAnApplication(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		s := newStage(t, 20, testenv.Major(major))
		s.db.MustExec("CREATE TABLE notes (id bigint PRIMARY KEY, note text); INSERT INTO notes VALUES (1, 'title 4')")
		s.run(0, "init", "--pipeline", "docs: title,body -> table docs_embedding", "--pipeline", "notes: note -> table notes_embedding")
		s.db.RunRole()
		d := s.start("--no-init")
		s.run(0, "wait", "--caught-up")
		s.as(s.db.Role(""))
		granted := func(args ...string) {
			t.Helper()
			_, stderr := s.run(7, append([]string{"search"}, args...)...)
			for line := range strings.Lines(stderr) {
				if strings.HasPrefix(line, "GRANT ") {
					s.db.MustExecSuper(line)
				}
			}
		}
		granted("docs", "title 4") // the group
		_, stderr := s.run(7, "search", "docs", "title 4")
		s.has(stderr, "ES0502", "--trust-owner "+testenv.Owner)
		s.set("EMBEDSIDECAR_TRUST_OWNER=" + testenv.Owner)
		granted("docs", "title 4") // the tables
		shown := func(args ...string) search.Hit {
			t.Helper()
			var hits []search.Hit
			testenv.Eventually(t, waitTimeout, func() (bool, string) { // on a busy machine the sidecar may answer too late
				out, err := s.command(append([]string{"search", "-o", "json", "-k", "1"}, args...)...).CombinedOutput()
				if err == nil {
					hits = decoded[[]search.Hit](t, string(out))
				}
				return err == nil, string(out)
			})
			if len(hits) != 1 {
				t.Fatalf("%q found %+v", args, hits)
			}
			return hits[0]
		}
		key := func(args ...string) string {
			t.Helper()
			return shown(args...).Key
		}
		if got := key("docs", "title 4\n\nbody 4"); got != "4" {
			t.Errorf("found %s", got)
		}
		granted("docs", "title 4", "--filter", "title=title 9")
		for want, args := range map[string][]string{
			"9":  {"--filter", "title=title 9"},
			"12": {"--filter", `{"id": {"$gte": 12, "$lt": 14, "$ne": 13}}`, "--max-distance", "2", "--fresh-only"},
		} {
			if got := key(append([]string{"docs", "title 4"}, args...)...); got != want {
				t.Errorf("%q found %s", args, got)
			}
		}
		granted("docs,notes", "title 4")
		if got := key("docs,notes", "title 4"); got == "" {
			t.Errorf("two pipelines: %s", got)
		}
		stdout, _ := s.run(0, "search", "docs", "title 4")
		s.has(stdout, "KEY", "DISTANCE")
		_, stderr = s.run(7, "search", "docs", "title 4", "--return", "title,body")
		s.has(stderr, "GRANT SELECT (body) ON public.docs")
		granted("docs", "title 4", "--highlight")
		hit := shown("docs", "title 4\n\nbody 4", "--return", "body,title", "--highlight", "--language", "simple")
		if hit.Value("body") != "body 4" || hit.Value("id") != "4" || hit.Text != "title 4\n\nbody 4" ||
			hit.Highlight != "<mark>title</mark> <mark>4</mark>\n\n<mark>body</mark> <mark>4</mark>" {
			t.Errorf("%+v", hit)
		}
		_, stderr = s.run(2, "search", "docs", "title 4", "--return", "none")
		s.has(stderr, `column "none"`)
		_, stderr = s.run(2, "search", "docs", "title 4", "--highlight", "--language", "none")
		s.has(stderr, `"none"`)
		_, stderr = s.run(7, "search", "docs", "title 4", "--hybrid")
		s.has(stderr, "without --like, --hybrid")
		_, stderr = s.run(2, "search", "dosc", "title 4")
		s.has(stderr, "there are: ")
		d.end(syscall.SIGTERM, 0)
		_, stderr = s.run(4, "search", "docs", "a text that nobody has asked for")
		s.has(stderr, "no sidecar runs")
	})
}

// TestRun_AKillWhileAnIndexIsBuiltLeavesNothingHalfDone kills the sidecar, and then the session that continues the
// build.
func TestRun_AKillWhileAnIndexIsBuiltLeavesNothingHalfDone(t *testing.T) {
	t.Parallel()
	s := newStage(t, 20)
	s.once(0)
	const ours = "docs_embedding_hnsw"
	hold := func() (release func()) {
		t.Helper()
		writer, err := s.db.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = writer.Rollback(context.Background()) })
		if _, err := writer.Exec(t.Context(), "UPDATE docs SET title = title WHERE id = 1"); err != nil {
			t.Fatal(err)
		}
		return func() {
			t.Helper()
			if err := writer.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	const breakOff = "SELECT pg_terminate_backend(pid) FROM pg_stat_progress_create_index WHERE datname = current_database()"
	release := hold()
	build := []string{"--index", "hnsw", "--table", "docs", "--columns", "title,body", "--into", "embedding"}
	d := s.start(build...)
	index := func() string {
		t.Helper()
		stdout, _ := s.run(0, "status", "-o", "json")
		found := decoded[observe.Database](t, stdout).Pipelines[0].Indexes
		if len(found) != 1 {
			t.Fatalf("%+v", found)
		}
		return string(found[0].State) + " " + found[0].Name
	}
	becomes := func(want string) {
		t.Helper()
		var got string
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			got = index()
			return got == want, fmt.Sprintf("%q, want %q", got, want)
		})
	}
	becomes("building " + ours) // it waits for the writer
	d.end(syscall.SIGKILL, -1)
	if got := index(); got != "building "+ours { // the server goes on
		t.Errorf("after the sidecar was killed: %q", got)
	}
	s.db.MustExecSuper(breakOff)
	becomes("invalid " + ours)
	stdout, _ := s.run(0, "status")
	s.has(stdout, "INDEX", "invalid", "! public.docs: the build of index "+ours+
		" was interrupted: REINDEX INDEX CONCURRENTLY")
	stdout, _ = s.run(0, "status", "-o", "yaml")
	s.has(stdout, "state: invalid")
	release()
	s.once(0, "--index", "hnsw")
	if got := index(); got != "ready "+ours {
		t.Errorf("after the next start: %q", got)
	}
	if n := testenv.Value[int](s.db, "SELECT count(*) FROM pg_index WHERE indrelid = 'docs'::regclass"); n != 2 {
		t.Errorf("%d indexes, want the primary key and one over the vectors", n)
	}
	stdout, _ = s.run(0, "check")
	s.has(stdout, `index of "public.docs": `+ours, "hnsw, vector_cosine_ops")

	// A sidecar that keeps running restarts the build.
	s.db.MustExec("DROP INDEX " + ours)
	release = hold()
	d = s.start(build...)
	becomes("building " + ours)
	s.db.MustExecSuper(breakOff)
	d.logged("index not built yet", "error")
	release()
	becomes("ready " + ours)
}
