package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/testenv"
)

const (
	askBodies = `{"name": "bodies", "table": "public.docs", "columns": ["body"], "into": {"table": "bodies_embedding"}}`
	askTitles = `{"name": "titles", "table": "public.docs", "columns": ["title"], "into": {"table": "titles_embedding"}}`
)

// asks makes a request for a pipeline by SQL, and returns its number, state and detail.
func (s *stage) asks(call string) (id int64, state, detail string) {
	s.t.Helper()
	err := s.db.Pool.QueryRow(s.t.Context(), "SELECT request_id, state, detail FROM embedsidecar."+call).
		Scan(&id, &state, &detail)
	if err != nil {
		s.t.Fatalf("%s: %v", call, err)
	}
	return id, state, detail
}

// comesTo waits until a request is done, planned or refused, and returns its state and reason.
func (s *stage) comesTo(id int64, want string) (reason string) {
	s.t.Helper()
	testenv.Eventually(s.t, waitTimeout, func() (bool, string) {
		state, why := "", ""
		err := s.db.Super().QueryRow(s.t.Context(), `SELECT state, concat_ws('; ', reason, array_to_string(hints, '; '))
			FROM embedsidecar.requests WHERE request_id = $1`, id).Scan(&state, &why)
		if err != nil {
			return false, err.Error()
		}
		if state != want && (state == "done" || state == "planned" || state == "refused") {
			s.t.Fatalf("request %d is %s: %s", id, state, why)
		}
		reason = why
		return state == want, state + ": " + why
	})
	return reason
}

// does makes a request by SQL that succeeds.
func (s *stage) does(call string) {
	s.t.Helper()
	id, _, _ := s.asks(call)
	s.comesTo(id, "done")
}

// plans makes a dry-run request by SQL, and returns the plan.
func (s *stage) plans(call string) (plan control.Configured) {
	s.t.Helper()
	id, _, _ := s.asks(call)
	s.comesTo(id, "planned")
	return s.planOf(id)
}

func (s *stage) planOf(id int64) (plan control.Configured) {
	s.t.Helper()
	text := testenv.Value[string](s.db, "SELECT coalesce(plan::text, '') FROM embedsidecar.requests WHERE request_id = $1", id)
	if err := json.Unmarshal([]byte(text), &plan); err != nil {
		s.t.Fatalf("the plan of request %d: %v: %s", id, err, text)
	}
	return plan
}

func (s *stage) isRefused(call string, words ...string) {
	s.t.Helper()
	id, _, _ := s.asks(call)
	s.has(s.comesTo(id, "refused"), words...)
}

// fails makes a request by SQL that is an error at once.
func (s *stage) fails(pool *pgxpool.Pool, call string, words ...string) {
	s.t.Helper()
	_, err := pool.Exec(s.t.Context(), "SELECT embedsidecar."+call)
	if err == nil {
		s.t.Errorf("%s is no error", call)
		return
	}
	s.has(err.Error(), words...)
}

func create(definition string) string {
	return "create_pipeline('" + strings.ReplaceAll(definition, "'", "''") + "')"
}

func (s *stage) vectorsOf(table string, want int) {
	s.t.Helper()
	testenv.Eventually(s.t, waitTimeout, func() (bool, string) {
		n := -1
		if err := s.db.Super().QueryRow(s.t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
			return false, err.Error()
		}
		return n == want, fmt.Sprintf("%s has %d rows, want %d", table, n, want)
	})
}

// If a sidecar cannot find out at its start whether it may carry out requests, as when the server restarts then, it
// asks again.
func TestP2_RequestsAreTakenThoughTheStartCouldNotAsk(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	file := s.configured(liveDocs)
	s.run(0, "init", "--config", file)
	s.db.MustExec("ALTER FUNCTION embedsidecar.next_request(name) RENAME TO away")
	d := s.start("--config", file)
	d.logged("cannot carry out requests for pipelines yet", "error")
	s.db.MustExec("ALTER FUNCTION embedsidecar.away(name) RENAME TO next_request")
	id, _, _ := s.asks(create(askBodies))
	s.comesTo(id, "done")
	d.end(syscall.SIGTERM, 0)
}

// Pipelines are created, changed and dropped by SQL while a sidecar runs, and survive its restarts and its file's
// changes.
func TestAsked_BySQL(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	file := s.configured(liveDocs)
	s.run(0, "init", "--config", file)
	id, state, detail := s.asks(create(askBodies)) // without a running sidecar
	if state != "waiting" || !strings.Contains(detail, "none runs now") {
		t.Errorf("%s %s", state, detail)
	}
	if again, _, _ := s.asks(create(askBodies)); again != id {
		t.Errorf("asked again it is request %d, want %d", again, id)
	}
	if n := testenv.Value[int](s.db, "SELECT count(*)::int FROM embedsidecar.plan() WHERE subject = 'request'"); n != 1 {
		t.Errorf("the plan has %d requests", n)
	}
	d := s.start("--config", file)
	s.comesTo(id, "done")
	s.vectorsOf("bodies_embedding", 3)
	s.does(create(`{"table": "docs", "columns": ["id"], "into": {"table": "unnamed_embedding"}}`))
	s.vectorsOf("unnamed_embedding", 3)
	s.does("drop_pipeline('public.docs')")
	s.does(create(askTitles))
	if _, state, _ := s.asks(create(askTitles)); state != "done" {
		t.Errorf("what is there already is %s", state)
	}
	s.fails(s.db.Pool, create(strings.Replace(askTitles, "title\"", "body\"", 1)),
		"already exists, with another definition")
	s.fails(s.db.Pool, create(strings.ReplaceAll(askTitles, "titles", "docs")), "it comes from the file "+file)
	s.fails(s.db.Pool, "change_pipeline('docs', '{}')", "it comes from the file "+file)
	s.fails(s.db.Pool, "drop_pipeline('docs')", "it comes from the file "+file)
	s.fails(s.db.Pool, "drop_pipeline('nobody')", `there is no pipeline "nobody"`)
	s.fails(s.db.Pool, "change_pipeline('titles', '{\"name\": \"x\"}')", "cannot be changed")
	for _, bad := range []string{"'[]'", "'3'", "NULL", "'{}'", `'{"name": 3}'`, `'{"name": ""}'`} {
		_, err := s.db.Pool.Exec(t.Context(), "SELECT embedsidecar.create_pipeline("+bad+")")
		if err == nil && bad != `'{"name": 3}'` {
			t.Errorf("%s is taken", bad)
		}
	}
	s.fails(s.db.Pool, "create_pipeline(jsonb_build_object('name', 'x', 'text', repeat('x', 70000)))", "too many")

	// All mistakes are reported at once, and change nothing.
	s.isRefused(create(`{"name": "bad", "tabel": "docs", "columns": "title,", "model": "/etc/passwd", "plugin": "/bin/sh", "into": {"table": "x"}}`),
		`unknown key "tabel"`, "/etc/passwd", "/bin/sh", "columns")
	s.isRefused(create(`{"name": "bad", "table": "public.gone", "columns": ["title"], "into": {"table": "gone_embedding"}}`), "gone")
	s.isRefused(create(`{"name": "bad", "table": "public.docs", "columns": ["title"], "into": {"table": "docs_embedding"}}`), "same destination")
	s.isRefused(create(`{"name": "bad", "table": "public.docs", "text": "nobody(title)", "into": {"table": "bad_embedding"}}`), "nobody")
	s.isRefused(`change_pipeline('titles', '{"columns": ["none"]}')`, "none")
	s.stands("titles", health.UpToDate)

	// A change replaces the keys that it names.
	s.does(`change_pipeline('titles', '{"where": "id > 1"}')`)
	s.vectorsOf("titles_embedding", 2)
	s.does(`change_pipeline('titles', '{"where": null}')`)
	s.vectorsOf("titles_embedding", 3)

	// Pipelines of the file come and go beside them.
	s.rewrite(file, liveDocs, strings.ReplaceAll(liveBodies, "bodies", "others"))
	s.vectorsOf("others_embedding", 3)
	s.rewrite(file, liveDocs)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		names := testenv.Value[string](s.db, "SELECT string_agg(name, ' ' ORDER BY name) FROM embedsidecar.pipeline")
		return names == "bodies docs titles", names
	})
	// A file that names a declared pipeline is refused, and the declared one stays.
	s.rewrite(file, liveDocs, liveBodies)
	s.refused(d, "bodies")
	s.does(create(strings.ReplaceAll(askTitles, "titles", "more"))) // a bad file does not block requests
	s.does("drop_pipeline('more')")
	d.end(syscall.SIGTERM, 0)

	// They survive restarts, also with a file without pipelines.
	nothing := filepath.Join(t.TempDir(), "none.yaml")
	if err := os.WriteFile(nothing, []byte("version: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.run(0, "uninstall", "docs", "--yes")
	d = s.start("--config", nothing)
	s.db.MustExec("INSERT INTO docs VALUES (4, 'four', 'four')")
	s.vectorsOf("titles_embedding", 4)
	s.vectorsOf("bodies_embedding", 4)
	s.does("drop_pipeline('bodies')")
	s.does("drop_pipeline('titles')")
	s.vectorsOf("titles_embedding", 4) // its vectors stay
	s.does(create(askTitles))          // and are used again without embedding
	s.stands("titles", health.UpToDate)
	if n := testenv.Value[int64](s.db, "SELECT tokens_embedded FROM embedsidecar.status WHERE pipeline = 'titles'"); n != 0 {
		t.Errorf("%d tokens were embedded again", n)
	}
	origin := testenv.Value[string](s.db, "SELECT origin FROM embedsidecar.configuration WHERE name = 'titles'")
	if origin != "sql" {
		t.Errorf("the pipeline comes from %q", origin)
	}
	d.end(syscall.SIGTERM, 0)
	s.run(0, "uninstall", "titles", "--yes") // by hand: it is no longer declared
	if n := testenv.Value[int](s.db, "SELECT count(*)::int FROM embedsidecar.declared"); n != 0 {
		t.Errorf("%d are declared still", n)
	}
	audit := testenv.Value[string](s.db, `SELECT string_agg(DISTINCT action || ' ' || result, ', ') FROM embedsidecar.audit`)
	s.has(audit, "create_pipeline done", "create_pipeline refused", "change_pipeline done", "drop_pipeline done")
}

// A dry run reports the changes with costs and losses, or why the request would be refused, both in a sidecar and in
// embedsidecar apply. It changes nothing, and counts neither as configured nor as requested or done.
func TestAsked_ADryRunOnlyTells(t *testing.T) {
	t.Parallel()
	t.Run("one that never ends", endlessDryRun)
	s := newStage(t, 3)
	file := s.configured(liveDocs)
	s.run(0, "init", "--config", file)
	dry := func(call string) string { return strings.TrimSuffix(call, ")") + ", dry_run => true)" }
	all := func() string {
		return testenv.Value[string](s.db, `SELECT concat_ws(' ', (SELECT string_agg(p::text, ' ' ORDER BY name)
			FROM (SELECT name, generation, status, origin FROM embedsidecar.pipeline) AS p),
			(SELECT string_agg(d::text, ' ') FROM embedsidecar.declared AS d),
			(SELECT count(*) FROM embedsidecar.audit_log WHERE action LIKE '%\_pipeline'),
			(SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace))`)
	}
	before := all()
	id, state, detail := s.asks(dry(create(askBodies)))
	if again, _, _ := s.asks(dry(create(askBodies))); again != id || state != "waiting" {
		t.Errorf("asked again it is request %d, want %d, which is %s", again, id, state)
	}
	s.has(detail, "none runs now")
	s.fails(s.db.Pool, "change_pipeline('bodies', '{}')", `there is no pipeline "bodies"`)
	if n := testenv.Value[int](s.db, "SELECT count(*)::int FROM embedsidecar.plan() WHERE subject = 'request'"); n != 0 {
		t.Errorf("the plan has %d requests", n)
	}
	stdout, _ := s.run(0, "plan", "--config", file, "-o", "json")
	s.has(stdout, `"unchanged"`)
	creates := func(plan control.Configured) {
		t.Helper()
		if len(plan.Costs) != 1 || plan.Costs[0].Pipeline != "bodies" || plan.Costs[0].Rows != 3 || plan.Costs[0].Tokens == 0 ||
			plan.State != control.Planned || !strings.Contains(strings.Join(plan.Steps, "\n"), "bodies_embedding") {
			t.Errorf("%+v", plan)
		}
	}
	stdout, _ = s.run(0, "apply", "--yes", "--config", file)
	s.has(stdout, fmt.Sprintf(`request %d: create pipeline "bodies" (dry run)`, id))
	s.comesTo(id, "planned")
	creates(s.planOf(id))

	d := s.start("--config", file)
	creates(s.plans(dry(create(askBodies))))
	s.isRefused(dry(create(`{"name": "bad", "tabel": "docs", "columns": "title,", "into": {"table": "x"}}`)), `unknown key "tabel"`, "columns")
	s.isRefused(dry(create(strings.ReplaceAll(askBodies, "bodies_", "docs_"))), "same destination")
	s.fails(s.db.Pool, dry("drop_pipeline('docs')"), "it comes from the file "+file)
	s.fails(s.db.Pool, dry("drop_pipeline('bodies')"), `there is no pipeline "bodies"`)
	s.fails(s.db.Pool, "drop_pipeline('bodies', dry_run => NULL)", "there is no pipeline")
	s.fails(s.db.Pool, "create_pipeline('"+askBodies+"', dry_run => NULL)", "expected true or false")
	if after := all(); after != before {
		t.Errorf("there is %s, want %s", after, before)
	}

	s.does(create(askBodies))
	s.vectorsOf("bodies_embedding", 3)
	before = all()
	change := s.plans(dry(`change_pipeline('bodies', '{"columns": null, "text": "upper(body)"}')`))
	if len(change.Costs) != 1 || change.Costs[0].Rows != 3 {
		t.Errorf("a change of the text: %+v", change)
	}
	for _, call := range []string{`change_pipeline('bodies', '{"columns": ["body"]}')`, create(askBodies)} {
		if same := s.plans(dry(call)); same.State != control.Unchanged {
			t.Errorf("%s: %+v", call, same)
		}
	}
	s.fails(s.db.Pool, dry(create(strings.Replace(askBodies, "[\"body", "[\"title", 1))),
		"already exists, with another definition")
	drop := s.plans(dry("drop_pipeline('bodies')"))
	if len(drop.Removed) != 1 || !strings.Contains(strings.Join(drop.Lost, "\n"), "bodies_embedding") {
		t.Errorf("a drop: %+v", drop)
	}
	if after := all(); after != before {
		t.Errorf("there is %s, want %s", after, before)
	}
	d.end(syscall.SIGTERM, 0)
	drops, _, _ := s.asks(dry("drop_pipeline('bodies')"))
	bad, _, _ := s.asks(dry(create(strings.ReplaceAll(askTitles, "public.docs", "public.gone"))))
	s.run(0, "apply", "--yes", "--config", file)
	s.comesTo(drops, "planned")
	s.has(s.comesTo(bad, "refused"), "gone")
	if got := s.planOf(drops); !slices.Equal(got.Lost, drop.Lost) {
		t.Errorf("apply says %+v, want %+v", got, drop)
	}
	d = s.start("--config", file)
	s.db.MustExec("INSERT INTO docs VALUES (4, 'four', 'four')")
	s.vectorsOf("bodies_embedding", 4)
	if after := all(); after != before {
		t.Errorf("there is %s, want %s", after, before)
	}
	d.end(syscall.SIGTERM, 0)
}

// A file that names a declared pipeline while nothing runs takes precedence. Dropping the declared pipeline leaves that
// of the file.
func TestP1_DroppingWhatIsDeclaredLeavesTheFileItsPipeline(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	file := s.configured(liveDocs)
	s.run(0, "init", "--config", file)
	d := s.start("--config", file)
	s.does(create(askBodies))
	s.vectorsOf("bodies_embedding", 3)
	d.end(syscall.SIGTERM, 0)
	s.rewrite(file, liveDocs, strings.Replace(liveBodies, "columns: [body]", "text: upper(body)", 1))
	d = s.start("--config", file)
	d.logged("a pipeline declared by SQL or HTTP conflicts with the configuration, which takes precedence", "msg")
	s.does("drop_pipeline('bodies')")
	s.db.MustExec("INSERT INTO docs VALUES (4, 'four', 'four')")
	s.vectorsOf("bodies_embedding", 4)
	s.stands("bodies", health.UpToDate)
	d.end(syscall.SIGTERM, 0)

	// So does apply, if no sidecar carries out requests.
	s.rewrite(file, liveDocs)
	s.run(0, "uninstall", "bodies", "--yes")
	d = s.start("--config", file)
	s.does(create(askBodies))
	d.end(syscall.SIGTERM, 0)
	s.rewrite(file, liveDocs, liveBodies)
	d = s.start("--no-init", "--config", file)
	drop, _, _ := s.asks("drop_pipeline('bodies')")
	s.run(0, "apply", "--yes", "--config", file)
	s.comesTo(drop, "done")
	s.db.MustExec("INSERT INTO docs VALUES (5, 'five', 'five')")
	s.vectorsOf("bodies_embedding", 5)
	d.end(syscall.SIGTERM, 0)
}

// Without a sidecar that sets up pipelines, embedsidecar apply carries out requests, and plan shows them.
func TestAsked_ApplyCarriesThemOut(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	file := s.configured(liveDocs)
	s.run(0, "init", "--config", file)
	d := s.start("--no-init", "--config", file)
	good, _, detail := s.asks(create(askBodies))
	s.has(detail, "none runs now")
	bad, _, _ := s.asks(create(strings.ReplaceAll(strings.Replace(askTitles, "public.docs", "gone", 1), "titles", "bad")))
	stdout, _ := s.run(0, "plan", "--config", file)
	s.has(stdout, fmt.Sprintf(`request %d: create pipeline "bodies"`, good))
	stdout, _ = s.run(0, "apply", "--yes", "--config", file)
	s.has(stdout, fmt.Sprintf(`request %d: create pipeline "bodies"`, good), "refused")
	s.comesTo(good, "done")
	s.comesTo(bad, "refused")
	s.vectorsOf("bodies_embedding", 2) // embedded by the sidecar, which sets nothing up
	stdout, _ = s.run(0, "plan", "--config", file, "-o", "json")
	s.has(stdout, `"unchanged"`)
	drop, _, _ := s.asks("drop_pipeline('bodies')")
	s.run(0, "apply", "--yes", "--config", file)
	s.comesTo(drop, "done")
	d.end(syscall.SIGTERM, 0)
}

// If a sidecar is killed while it carries out a request, the next one does it, and it takes effect once.
func TestAsked_AKilledSidecarLeavesItsRequest(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"app/request-taken", "app/request-done"} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 3)
			file := s.configured(liveDocs)
			s.run(0, "init", "--config", file)
			for i, call := range []string{create(askBodies), `change_pipeline('bodies', '{"where": "id > 1"}')`, "drop_pipeline('bodies')"} {
				d := s.dying(place, "--config", file)
				id, _, _ := s.asks(call)
				d.ends(-1)
				if i == 1 {
					d = s.dying(place, "--config", file) // twice
					d.ends(-1)
					if n := testenv.Value[int](s.db, `SELECT tries - floor(extract(epoch FROM now() - requested_at) / 30)::integer
						FROM embedsidecar.request WHERE request_id = $1`, id); n > 1 {
						t.Errorf("what was begun again at once counts %d times, want once", n)
					}
				}
				d = s.start("--config", file)
				s.comesTo(id, "done")
				if i < 2 {
					s.vectorsOf("bodies_embedding", 3-i)
				}
				s.stands("docs", health.UpToDate)
				d.end(syscall.SIGTERM, 0)
			}
			counts := testenv.Value[string](s.db, `SELECT concat_ws(' ', (SELECT count(*) FROM embedsidecar.pipeline),
				(SELECT count(*) FROM embedsidecar.declared), (SELECT count(*) FROM embedsidecar.audit
				WHERE action LIKE '%\_pipeline' AND result = 'done' AND changed = 1))`)
			if counts != "1 0 3" {
				t.Errorf("pipelines, declared, done: %s", counts)
			}
		})
	}
}

// A request that ended the program 20 times is not started again.
func TestAsked_WhatEndsTheProgramEachTimeIsRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	file := s.configured(liveDocs)
	s.run(0, "init", "--config", file)
	d := s.dying("app/request-taken", "--config", file)
	id, _, _ := s.asks(create(askBodies))
	d.ends(-1)
	s.db.MustExecSuper(`UPDATE embedsidecar.request SET tries = 20, counted_at = now() - interval '1 min'`)
	d = s.start("--config", file)
	s.has(s.comesTo(id, "refused"), "started 20 times", "ended each time")
	d.end(syscall.SIGTERM, 0)
}

// One of two sidecars carries out a request, and the other follows.
func TestAsked_TwoSidecars(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	file := s.configured(liveDocs)
	s.run(0, "init", "--config", file)
	one := s.start("--config", file)
	two := s.start("--config", file)
	both := func(name string, want int) {
		t.Helper()
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			n := testenv.Value[int](s.db, `SELECT count(*)::int FROM embedsidecar.configuration
				WHERE subject = 'pipeline' AND name = $1 AND state = 'in_force'`, name)
			return n == want, fmt.Sprintf("%d sidecars have %s, want %d", n, name, want)
		})
	}
	for range 3 {
		s.does(create(askBodies))
		both("bodies", 2)
		s.does(`change_pipeline('bodies', '{"where": "id > 1"}')`)
		s.does(`change_pipeline('bodies', '{"where": null}')`)
		both("bodies", 2)
		s.vectorsOf("bodies_embedding", 3)
		s.does("drop_pipeline('bodies')")
		both("bodies", 0)
	}
	if n := testenv.Value[int](s.db, "SELECT count(*)::int FROM embedsidecar.pipeline"); n != 1 {
		t.Errorf("%d pipelines are set up", n)
	}
	one.end(syscall.SIGTERM, 0)
	two.end(syscall.SIGTERM, 0)
}

// dying starts a sidecar that is killed at a failpoint.
func (s *stage) dying(place string, args ...string) *daemon {
	s.t.Helper()
	return s.prepared(func(c *exec.Cmd) { c.Env = append(c.Env, failpoint.Env+"="+place+"=kill") },
		append([]string{"run"}, args...)...)
}

// endlessDryRun: a request whose dry run never ends, because a text goes on when it is cancelled, holds up later
// requests for a while only.
func endlessDryRun(t *testing.T) {
	t.Helper()
	t.Parallel()
	s := newStage(t, 3, testenv.On(testenv.Own(t, testenv.Options{}))) // slots of others would wait for it
	file := s.configured(liveDocs)
	s.run(0, "init", "--config", file)
	s.db.MustExec(`CREATE FUNCTION endless(t text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
		WHILE NOT pg_try_advisory_xact_lock_shared(1) LOOP
			BEGIN PERFORM pg_sleep(0.01); EXCEPTION WHEN query_canceled THEN NULL; END;
		END LOOP; RETURN t; END $$`)
	holder, err := s.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := holder.Exec(t.Context(), `SELECT pg_advisory_xact_lock(1)`); err != nil {
		t.Fatal(err)
	}
	d := s.start("--config", file)
	s.asks(`create_pipeline('{"name": "loops", "table": "public.docs", "text": "public.endless(body)",
		"into": {"table": "loops_embedding"}}', dry_run => true)`)
	id, _, _ := s.asks(create(askBodies))
	testenv.Eventually(t, 4*time.Minute, func() (bool, string) {
		state := testenv.Value[string](s.db, `SELECT state FROM embedsidecar.requests WHERE request_id = $1`, id)
		return state == "done", state
	})
	d.end(syscall.SIGTERM, 0)
}
