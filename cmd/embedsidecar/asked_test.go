package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

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

// asks requests something of pipelines by SQL, and returns the number of the request and how it stands.
func (s *stage) asks(call string) (id int64, state, detail string) {
	s.t.Helper()
	err := s.db.Pool.QueryRow(s.t.Context(), "SELECT request_id, state, detail FROM embedsidecar."+call).
		Scan(&id, &state, &detail)
	if err != nil {
		s.t.Fatalf("%s: %v", call, err)
	}
	return id, state, detail
}

// comesTo waits until a request is done, planned or refused, and returns its state and why.
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

// does requests something by SQL that is done.
func (s *stage) does(call string) {
	s.t.Helper()
	id, _, _ := s.asks(call)
	s.comesTo(id, "done")
}

// plans requests by SQL what something would do, and returns that.
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

// fails requests something by SQL that is an error at once.
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

// A sidecar that cannot find out at its start whether it may carry out requests, as when the server restarts just then,
// asks again.
func TestP2_RequestsAreTakenThoughTheStartCouldNotAsk(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	file := s.configured(liveDocs)
	s.run(0, "init", "--config", file)
	s.db.MustExec("ALTER FUNCTION embedsidecar.next_request(name) RENAME TO away")
	d := s.start("--config", file)
	d.logged("requests for pipelines are not carried out yet", "error")
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
	id, state, detail := s.asks(create(askBodies)) // while nothing runs
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
	s.fails(s.db.Pool, create(strings.Replace(askTitles, "title\"", "body\"", 1)), "is there already, with another definition")
	s.fails(s.db.Pool, create(strings.ReplaceAll(askTitles, "titles", "docs")), "it comes from the file "+file)
	s.fails(s.db.Pool, "change_pipeline('docs', '{}')", "it comes from the file "+file)
	s.fails(s.db.Pool, "drop_pipeline('docs')", "it comes from the file "+file)
	s.fails(s.db.Pool, "drop_pipeline('nobody')", `there is no pipeline "nobody"`)
	s.fails(s.db.Pool, "change_pipeline('titles', '{\"name\": \"x\"}')", "keeps its name")
	for _, bad := range []string{"'[]'", "'3'", "NULL", "'{}'", `'{"name": 3}'`, `'{"name": ""}'`} {
		_, err := s.db.Pool.Exec(t.Context(), "SELECT embedsidecar.create_pipeline("+bad+")")
		if err == nil && bad != `'{"name": 3}'` {
			t.Errorf("%s is taken", bad)
		}
	}
	s.fails(s.db.Pool, "create_pipeline(jsonb_build_object('name', 'x', 'text', repeat('x', 70000)))", "too many")

	// Mistakes are told all at once, and change nothing.
	s.isRefused(create(`{"name": "bad", "tabel": "docs", "columns": "title,", "model": "/etc/passwd", "plugin": "/bin/sh", "into": {"table": "x"}}`),
		`unknown key "tabel"`, "/etc/passwd", "/bin/sh", "columns")
	s.isRefused(create(`{"name": "bad", "table": "public.gone", "columns": ["title"], "into": {"table": "gone_embedding"}}`), "gone")
	s.isRefused(create(`{"name": "bad", "table": "public.docs", "columns": ["title"], "into": {"table": "docs_embedding"}}`), "same destination")
	s.isRefused(create(`{"name": "bad", "table": "public.docs", "text": "nobody(title)", "into": {"table": "bad_embedding"}}`), "nobody")
	s.isRefused(`change_pipeline('titles', '{"columns": ["none"]}')`, "none")
	s.stands("titles", health.UpToDate)

	// A change takes the keys that it names.
	s.does(`change_pipeline('titles', '{"where": "id > 1"}')`)
	s.vectorsOf("titles_embedding", 2)
	s.does(`change_pipeline('titles', '{"where": null}')`)
	s.vectorsOf("titles_embedding", 3)

	// Those of the file come and go beside them.
	s.rewrite(file, liveDocs, strings.ReplaceAll(liveBodies, "bodies", "others"))
	s.vectorsOf("others_embedding", 3)
	s.rewrite(file, liveDocs)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		names := testenv.Value[string](s.db, "SELECT string_agg(name, ' ' ORDER BY name) FROM embedsidecar.pipeline")
		return names == "bodies docs titles", names
	})
	// A file that names what is declared is refused, and what is declared stays.
	s.rewrite(file, liveDocs, liveBodies)
	s.refused(d, "bodies")
	s.does(create(strings.ReplaceAll(askTitles, "titles", "more"))) // a bad file keeps no request waiting
	s.does("drop_pipeline('more')")
	d.end(syscall.SIGTERM, 0)

	// They outlive restarts, also with a file that names none.
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
	s.does(create(askTitles))          // and come back without being paid for again
	s.stands("titles", health.UpToDate)
	if n := testenv.Value[int64](s.db, "SELECT tokens_embedded FROM embedsidecar.status WHERE pipeline = 'titles'"); n != 0 {
		t.Errorf("%d tokens were embedded again", n)
	}
	origin := testenv.Value[string](s.db, "SELECT origin FROM embedsidecar.configuration WHERE name = 'titles'")
	if origin != "sql" {
		t.Errorf("the pipeline comes from %q", origin)
	}
	d.end(syscall.SIGTERM, 0)
	s.run(0, "uninstall", "titles", "--yes") // by hand, it is not declared any more
	if n := testenv.Value[int](s.db, "SELECT count(*)::int FROM embedsidecar.declared"); n != 0 {
		t.Errorf("%d are declared still", n)
	}
	audit := testenv.Value[string](s.db, `SELECT string_agg(DISTINCT action || ' ' || result, ', ') FROM embedsidecar.audit`)
	s.has(audit, "create_pipeline done", "create_pipeline refused", "change_pipeline done", "drop_pipeline done")
}

// Of a dry run is told what it would do, with its costs and what is lost, or why it would be refused, by a sidecar and
// by embedsidecar apply. It changes nothing, and counts as nothing that is configured, asked for or done.
func TestAsked_ADryRunOnlyTells(t *testing.T) {
	t.Parallel()
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
	s.has(stdout, fmt.Sprintf(`request %d: create pipeline "bodies", a dry run`, id))
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
	s.fails(s.db.Pool, dry(create(strings.Replace(askBodies, "[\"body", "[\"title", 1))), "is there already, with another definition")
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

// A file that names a declared pipeline while nothing runs goes before it. Dropping what is declared leaves the file
// its own.
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
	d.logged("a pipeline that is declared by SQL or HTTP does not fit the configuration, which goes before it", "msg")
	s.does("drop_pipeline('bodies')")
	s.db.MustExec("INSERT INTO docs VALUES (4, 'four', 'four')")
	s.vectorsOf("bodies_embedding", 4)
	s.stands("bodies", health.UpToDate)
	d.end(syscall.SIGTERM, 0)

	// So does apply, where no sidecar carries requests out.
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

// Without a sidecar that sets up pipelines, embedsidecar apply carries requests out, and plan tells of them.
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
	s.vectorsOf("bodies_embedding", 2) // by the sidecar, which sets nothing up
	stdout, _ = s.run(0, "plan", "--config", file, "-o", "json")
	s.has(stdout, `"unchanged"`)
	drop, _, _ := s.asks("drop_pipeline('bodies')")
	s.run(0, "apply", "--yes", "--config", file)
	s.comesTo(drop, "done")
	d.end(syscall.SIGTERM, 0)
}

// A sidecar that is killed with a request in its hands leaves it to the next one, and it takes effect once.
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

// A request that ended the program 20 times, each at another time, is not begun again.
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
	s.has(s.comesTo(id, "refused"), "begun 20 times", "ended each time")
	d.end(syscall.SIGTERM, 0)
}

// Of two sidecars one carries a request out, and the other follows.
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

// TestTrust_WhoAsksForAPipelineHasTheRightsOfItsOwner: a role that may ask gets no pipeline over tables of others, and
// has nothing of its own run with the rights of the sidecar.
func TestTrust_WhoAsksForAPipelineHasTheRightsOfItsOwner(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	file := s.configured(liveDocs)
	s.run(0, "init", "--config", file)
	tenant := s.db.Role("")
	s.db.MustExecSuper(fmt.Sprintf(`GRANT CREATE, USAGE ON SCHEMA public TO %[1]s; GRANT USAGE ON SCHEMA embedsidecar TO %[1]s`, tenant))
	pool, err := pgxpool.New(t.Context(), s.db.URL(tenant))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	as := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	as(`CREATE TABLE mine (id int PRIMARY KEY, body text);
		INSERT INTO mine VALUES (1, 'one');
		CREATE FUNCTION public.trap(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
			RAISE EXCEPTION 'the trap has run as %', current_user; END $$;
		CREATE DOMAIN public.dom AS text CHECK (public.trap(VALUE) IS NULL);
		CREATE OPERATOR public.|+| (FUNCTION = public.trap, RIGHTARG = text)`)
	s.fails(pool, create(askBodies), "permission denied")
	s.db.MustExecSuper("GRANT EXECUTE ON FUNCTION embedsidecar.create_pipeline, embedsidecar.change_pipeline, embedsidecar.drop_pipeline TO " + tenant)
	s.db.MustExec("CREATE TABLE theirs (id int PRIMARY KEY, embedding vector(8)); CREATE SCHEMA closed")
	d := s.start("--config", file, "--trust-owner", "nobody")
	asked := func(call string) (id int64) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), "SELECT request_id FROM embedsidecar."+call).Scan(&id); err != nil {
			t.Fatalf("%s: %v", call, err)
		}
		return id
	}
	mine := func(key, value string) string {
		return create(`{"name": "mine", "table": "public.mine", "` + key + `": ` + value + `, "into": {"table": "mine_embedding"}}`)
	}
	for call, words := range map[string][]string{
		create(`{"name": "mine", "table": "public.mine", "columns": ["body"], "joins": [{"table": "public.docs", "as": "d", "on": {"id": "id"}, "text": "title"}], "into": {"table": "mine_embedding"}}`): {"joins"},
		create(askBodies): {"has not the rights of the owner of", "docs"},
		"create_pipeline('" + askBodies + "', dry_run => true)":                                                             {"has not the rights of the owner of", "docs"},
		create(`{"name": "mine", "table": "public.mine", "columns": ["body"], "into": {"table": "closed.mine_embedding"}}`): {"has not the rights of the owner of", "closed.mine_embedding"},
		create(`{"name": "public.docs", "table": "public.mine", "columns": ["body"], "into": {"table": "mine_embedding"}}`): {"means pipeline", "docs"},
		mine("text", `"public.trap(body)"`):                                                {"trap"},
		mine("text", `"body::public.dom::text"`):                                           {"dom"},
		mine("text", `"(OPERATOR(public.|+|) body)"`):                                      {"|+|"},
		mine("text", `"pg_read_file('/etc/passwd')"`):                                      {"pg_read_file"},
		mine("text", `"table_to_xml('embedsidecar.installation', true, false, '')::text"`): {"installation"},
		mine("text", `"(SELECT secret::text FROM embedsidecar.installation)"`):             {"sub-select"},
		mine("text", `"current_setting('data_directory')"`):                                {"current_setting"},
		create(`{"name": "mine", "table": "public.mine", "columns": ["body"], "where": "public.trap(body) IS NULL", "into": {"table": "mine_embedding"}}`):                                  {"trap"},
		create(`{"name": "mine", "table": "public.mine", "columns": ["body"], "priority": "public.trap(body)", "into": {"table": "mine_embedding"}}`):                                       {"trap"},
		create(`{"name": "mine", "table": "public.mine", "columns": ["body"], "ignore": "public.trap(text)", "into": {"table": "mine_embedding"}}`):                                         {"trap"},
		create(`{"name": "mine", "table": "public.mine", "columns": ["body"], "chunking": {"strategy": "sentences", "context": "public.trap(body)"}, "into": {"table": "mine_embedding"}}`): {"trap"},
		create(`{"name": "mine", "table": "public.mine", "columns": ["body"], "overwrite": true, "into": {"table": "public.theirs"}}`):                                                      {"theirs"},
		create(`{"name": "mine", "table": "public.mine", "columns": ["body"], "into": {"table": "embedsidecar.ledger"}}`):                                                                   {"ledger"},
	} {
		s.has(s.comesTo(asked(call), "refused"), words...)
	}
	text := d.text()
	if strings.Contains(text, "the trap has run") {
		t.Error("the trap has run")
	}
	// Nor does a table in public take a name over from one elsewhere.
	s.db.MustExec(`CREATE SCHEMA far; CREATE TABLE far.mine (id int PRIMARY KEY, body text)`)
	s.does(create(`{"table": "far.mine", "columns": ["body"], "into": {"table": "far.mine_embedding"}}`))
	s.has(s.comesTo(asked(create(`{"name": "own", "table": "public.mine", "columns": ["body"], "into": {"table": "mine_embedding"}}`)), "refused"),
		`the name "mine" means pipeline "far.mine"`)
	s.does("drop_pipeline('far.mine')")
	// What computes only passes: who sets up is another matter. As the role that owns all, anything does.
	good := asked(mine("text", `"concat_ws(' ', lower(body), left(body, 3))"`))
	s.has(s.comesTo(good, "refused"), "mine") // the sidecar does not own the table
	// A pipeline of another's.
	s.does(create(askBodies))
	s.has(s.comesTo(asked("drop_pipeline('bodies')"), "refused"), "has not the rights of the owner of")
	s.has(s.comesTo(asked("drop_pipeline('bodies', dry_run => true)"), "refused"), "has not the rights of the owner of")
	s.has(s.comesTo(asked(`change_pipeline('bodies', '{"where": "true"}')`), "refused"), "has not the rights of the owner of")
	s.stands("bodies", health.UpToDate)
	d.end(syscall.SIGTERM, 0)

	// Who is gone has no rights left, though another role has his name by then.
	gone := tenant + "_gone"
	s.db.MustExecSuper(fmt.Sprintf(`CREATE ROLE %[1]s; GRANT USAGE ON SCHEMA embedsidecar TO %[1]s;
		GRANT EXECUTE ON FUNCTION embedsidecar.drop_pipeline TO %[1]s; SET SESSION AUTHORIZATION %[1]s;
		SELECT embedsidecar.drop_pipeline('bodies'); RESET SESSION AUTHORIZATION;
		DROP OWNED BY %[1]s; DROP ROLE %[1]s; CREATE ROLE %[1]s SUPERUSER`, gone))
	t.Cleanup(func() { s.db.MustExecSuper("DROP ROLE " + gone) })
	d = s.start("--config", file)
	s.has(s.comesTo(testenv.Value[int64](s.db, "SELECT max(request_id) FROM embedsidecar.request"), "refused"), "is not there any more")
	d.end(syscall.SIGTERM, 0)

	// Bounds of what waits.
	_, err = pool.Exec(t.Context(), `SELECT embedsidecar.create_pipeline(jsonb_build_object('name', 'p' || i)) FROM generate_series(1, 200) AS i`)
	if err == nil || !strings.Contains(err.Error(), "100 requests") {
		t.Errorf("200 at once: %v", err)
	}
	s.fails(pool, "next_request('x')", "permission denied")
	s.fails(pool, "finish_request(1, NULL, '{}', NULL)", "permission denied")
	s.fails(pool, "request_pipeline('create', 'x', '{}', NULL, NULL, false)", "permission denied")
}

// TestTrust_ANameThatBecameAnothersIsJudgedAgain: what a role asked for over its own table does not go over to the
// table of another owner that has the name by then, neither in a sidecar that runs, nor at a start, nor by init. It
// does where the new table is the role's own again.
func TestTrust_ANameThatBecameAnothersIsJudgedAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	file := s.configured(liveDocs)
	s.run(0, "init", "--config", file)
	asker, other := s.db.Role(""), s.db.Role("")
	s.db.MustExecSuper(fmt.Sprintf(`GRANT CREATE, USAGE ON SCHEMA public TO %[1]s, %[2]s; GRANT %[1]s, %[2]s TO %[3]s;
		GRANT USAGE ON SCHEMA embedsidecar TO %[1]s; GRANT EXECUTE ON FUNCTION embedsidecar.create_pipeline TO %[1]s`,
		asker, other, testenv.Owner))
	as := func(role, sql string) {
		t.Helper()
		s.db.MustExecSuper("SET SESSION AUTHORIZATION " + role + "; " + sql + "; RESET SESSION AUTHORIZATION")
	}
	table := func(name, body string) string {
		return "CREATE TABLE " + name + " (id int PRIMARY KEY, body text); INSERT INTO " + name + " VALUES (1, '" + body + "')"
	}
	d := s.start("--config", file)
	for _, name := range []string{"gone", "renamed"} {
		as(asker, table(name, "own")+`; SELECT embedsidecar.create_pipeline('{"name": "`+name+`", "table": "public.`+name+
			`", "columns": ["body"], "into": {"table": "`+name+`_embedding"}}')`)
		s.stands(name, health.UpToDate)
	}
	as(asker, "DROP TABLE gone; ALTER TABLE renamed RENAME TO renamed_old")
	before := testenv.Value[string](s.db, "SELECT string_agg(e::text, ' ') FROM renamed_embedding AS e")
	as(other, table("gone", "secret")+"; "+table("renamed", "secret"))
	words := []string{"role \"" + asker + "\", who asked for it, has not the rights of the owner of public."}
	stay := func() {
		t.Helper()
		if n := testenv.Value[int](s.db, `SELECT count(*)::int FROM embedsidecar.pipeline AS p JOIN pg_class AS c
			ON c.oid = p.table_oid WHERE c.relowner = $1::regrole`, other); n != 0 {
			t.Errorf("%d pipelines read the tables of another", n)
		}
		if now := testenv.Value[string](s.db, "SELECT string_agg(e::text, ' ') FROM renamed_embedding AS e"); now != before {
			t.Errorf("the vectors are %s, and were %s", now, before)
		}
	}
	refused := func() {
		t.Helper()
		s.becomes("gone", health.Missing, words...)
		s.becomes("renamed", health.Otherwise, words...)
		stay()
	}
	refused()
	d.end(syscall.SIGTERM, 0)
	_, stderr := s.run(0, "init", "--config", file)
	s.has(stderr, words...)
	d = s.start("--config", file)
	refused()
	as(other, "DROP TABLE gone")
	as(asker, table("gone", "own again"))
	s.stands("gone", health.UpToDate)
	d.end(syscall.SIGTERM, 0)
}

// TestTrust_ANameGoesOnMeaningWhatItMeant: a table of the same name in another schema, and a pipeline over it, do not
// come to be meant by who does not name a schema.
func TestTrust_ANameGoesOnMeaningWhatItMeant(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	file := s.configured(liveDocs)
	s.run(0, "init", "--config", file)
	s.db.MustExec(`CREATE TABLE notes (id int PRIMARY KEY, body text)`)
	s.db.MustExec(`CREATE SCHEMA lair`)
	s.db.MustExec(`CREATE TABLE lair.notes (id int PRIMARY KEY, body text)`)
	d := s.start("--config", file)
	s.does(create(`{"table": "public.notes", "columns": ["body"], "into": {"table": "notes_embedding"}}`))
	s.isRefused(create(`{"name": "notes", "table": "lair.notes", "columns": ["body"], "into": {"table": "lair.notes_embedding"}}`), "means pipeline", "public.notes")
	s.does(create(`{"table": "lair.notes", "columns": ["body"], "into": {"table": "lair.notes_embedding"}}`))
	// Nor does a name mean several pipelines, or none, where somebody types or pastes it.
	for _, name := range []string{"*", "not?s", "--yes", "label:team=a", " docs", "docs ", "do\u202ecs", ".."} {
		s.isRefused(create(fmt.Sprintf(`{"name": %q, "table": "lair.notes", "columns": ["body"], "into": {"table": "lair.notes_embedding"}}`, name)),
			"could be taken for")
	}
	if got := testenv.Value[string](s.db, `SELECT name FROM embedsidecar.pipeline WHERE pipeline_id = embedsidecar.pipeline_meant('notes')`); got != "public.notes" {
		t.Errorf("by SQL notes is %q", got)
	}
	stdout, _ := s.run(0, "pause", "notes", "-o", "json")
	s.has(stdout, "public.notes")

	// One that is called otherwise than its table is meant by the table's name, too. Whoever names a table after it, or
	// after it with its schema, does not take its place.
	s.db.MustExec(`CREATE TABLE news (id int PRIMARY KEY, body text)`)
	for _, other := range []string{"lair.news", `lair."public.news"`} {
		s.db.MustExec(`CREATE TABLE ` + other + ` (id int PRIMARY KEY, body text)`)
	}
	s.does(create(`{"name": "articles", "table": "public.news", "columns": ["body"], "into": {"table": "news_embedding"}}`))
	s.does(create(`{"table": "lair.news", "columns": ["body"], "into": {"table": "lair.news_embedding"}}`))
	s.does(create(`{"name": "x", "table": "lair.\"public.news\"", "columns": ["body"], "into": {"table": "lair.x_embedding"}}`))
	for _, name := range []string{"news", "public.news"} {
		if got := testenv.Value[string](s.db, `SELECT name FROM embedsidecar.pipeline WHERE pipeline_id = embedsidecar.pipeline_meant($1)`, name); got != "articles" {
			t.Errorf("by SQL %s is %q", name, got)
		}
		stdout, _ := s.run(0, "pause", name, "-o", "json")
		s.has(stdout, `"articles"`)
	}
	s.db.MustExec(`CREATE TABLE lair."n*" (id int PRIMARY KEY, body text)`)
	s.does(create(`{"name": "star", "table": "lair.\"n*\"", "columns": ["body"], "into": {"table": "lair.star_embedding"}}`))
	stdout, _ = s.run(0, "pause", "lair.n*", "-o", "json")
	s.has(stdout, "lair.notes", "lair.news")
	d.end(syscall.SIGTERM, 0)
}

// TestTrust_WhoAskedForAPipelineStopsNobody: one whose table its owner has dropped, or made of another form, stands in
// the way of no set-up of others: neither of the file's, nor of those that are asked for.
func TestTrust_WhoAskedForAPipelineStopsNobody(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	file := s.configured(liveDocs)
	written := func(plugin string, pipelines ...string) {
		t.Helper()
		s.rewrite(file, pipelines...)
		text, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(file, append([]byte("models: [{name: fake, plugin: "+plugin+"}]\n"), text...), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	written("fake", liveDocs)
	s.run(0, "init", "--config", file)
	d := s.start("--config", file)
	s.does(create(strings.Replace(strings.ReplaceAll(askTitles, "titles", "dumb"), "{", `{"model": "fake", `, 1)))
	for _, name := range []string{"gone", "other"} {
		s.db.MustExec("CREATE TABLE " + name + " (id int PRIMARY KEY, body text)")
		s.does(create(`{"name": "` + name + `", "table": "public.` + name + `", "columns": ["body"], "into": {"table": "` + name + `_embedding"}}`))
	}
	s.db.MustExec(`DROP TABLE gone; ALTER TABLE other DROP COLUMN body`)
	s.does(create(askBodies))
	s.vectorsOf("bodies_embedding", 2)
	s.does("drop_pipeline('bodies')")
	d.end(syscall.SIGTERM, 0)

	written("nowhere", liveDocs)
	_, stderr := s.run(0, "init", "--config", file)
	s.has(stderr, "gone", "other", "nowhere")
	if strings.Contains(stderr, "not configured") {
		t.Errorf("they are taken for left over:\n%s", stderr)
	}
	written("nowhere", liveDocs, liveBodies)
	id, _, _ := s.asks(create(askTitles))
	s.run(0, "apply", "--yes", "--config", file)
	s.comesTo(id, "done")
	written("fake", liveDocs, liveBodies)
	d = s.start("--config", file)
	s.vectorsOf("bodies_embedding", 2)
	s.vectorsOf("titles_embedding", 2)
	for _, name := range []string{"gone", "other", "dumb"} {
		s.does("drop_pipeline('" + name + "')")
	}
	d.end(syscall.SIGTERM, 0)
}

// TestTrust_WhoAsksForAPipelineAsksHimself: maintenance of a table, and a foreign key, run the code of its owner in the
// sessions of others. What it asks for there is not asked by them.
func TestTrust_WhoAsksForAPipelineAsksHimself(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	s.run(0, "init", "--config", s.configured(liveDocs))
	tenant := s.db.Role("")
	s.db.MustExecSuper(fmt.Sprintf(`GRANT CREATE, USAGE ON SCHEMA public TO %[1]s; GRANT USAGE ON SCHEMA embedsidecar TO %[1]s;
		GRANT EXECUTE ON FUNCTION embedsidecar.create_pipeline, embedsidecar.pause, embedsidecar.explain TO %[1]s;
		CREATE TABLE others (id int PRIMARY KEY); INSERT INTO others VALUES (1); GRANT REFERENCES, SELECT ON others TO %[1]s`, tenant))
	pool, err := pgxpool.New(t.Context(), s.db.URL(tenant))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(t.Context(), `
		CREATE TABLE mine (id int REFERENCES others ON DELETE CASCADE, body text);
		CREATE TABLE told (what text); GRANT SELECT ON told TO public;
		CREATE FUNCTION asks() RETURNS void LANGUAGE plpgsql AS $$ DECLARE call text; BEGIN
			FOREACH call IN ARRAY ARRAY['create_pipeline(''`+askBodies+`'')', 'pause(''docs'')', 'explain(''docs'', ''1'')'] LOOP
				BEGIN
					EXECUTE 'SELECT embedsidecar.' || call;
					INSERT INTO public.told VALUES (call || ' is done for ' || session_user);
				EXCEPTION WHEN insufficient_privilege THEN
					INSERT INTO public.told VALUES (SQLERRM);
				END;
			END LOOP; END $$;
		CREATE FUNCTION steady(t text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
			IF session_user <> current_user THEN PERFORM public.asks(); END IF; RETURN t; END $$;
		CREATE INDEX ON mine (steady(body));
		CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF session_user <> current_user THEN PERFORM public.asks(); END IF; RETURN OLD; END $$;
		CREATE TRIGGER fires BEFORE DELETE ON mine FOR EACH ROW EXECUTE FUNCTION fires();
		INSERT INTO mine VALUES (1, 'one')`); err != nil {
		t.Fatal(err)
	}
	told := func(prefix string) int {
		return testenv.Value[int](s.db, "SELECT count(*)::int FROM told WHERE what LIKE '"+prefix+"%'")
	}
	for _, sql := range []string{"ANALYZE mine", "REINDEX TABLE mine", "VACUUM FULL mine"} {
		s.db.MustExecSuper(sql)
	}
	if n := told("code of a table asks"); n < 3 {
		t.Errorf("%d were refused in the sessions of others", n)
	}
	s.db.MustExecSuper("DELETE FROM others")
	if n := told("create_pipeline: a trigger may not ask"); n != 1 {
		t.Errorf("%d were refused in a trigger of a foreign key", n)
	}
	if n := told("create_pipeline("); n > 0 {
		t.Error("what code of a table asked for was taken for a request of its caller")
	}
	if n := testenv.Value[int](s.db, "SELECT count(*)::int FROM embedsidecar.request"); n != 0 {
		t.Errorf("there are %d requests", n)
	}
	// What is part of their own statements is theirs.
	if _, err := pool.Exec(t.Context(), `
		CREATE FUNCTION checked() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM public.asks(); RETURN true; END $$;
		CREATE TABLE checks (body text CHECK (public.checked()))`); err != nil {
		t.Fatal(err)
	}
	s.db.MustExecSuper("INSERT INTO checks VALUES ('one')")
	if n := told("create_pipeline("); n != 1 {
		t.Errorf("a CHECK has asked %d times: docs/security.md says that it can", n)
	}
}

// By HTTP it is the same: an answer waits for the outcome, and says where to look.
func TestAsked_ByHTTP(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	file, tokens := s.configured(liveDocs), filepath.Join(t.TempDir(), "tokens")
	secret, _ := s.run(0, "token", "create", "ops", "--role", "admin", "--tokens-file", tokens)
	operator, _ := s.run(0, "token", "create", "op", "--role", "operator", "--tokens-file", tokens)
	d := s.start("--config", file, "--admin-listen", "127.0.0.1:0", "--tokens-file", tokens)
	base := "http://" + d.logged("administrators are answered", "address")
	s.stands("docs", health.UpToDate)
	ask := func(token, method, path, body string, want int, words ...string) (r struct {
		ID    int64  `json:"request_id"`
		State string `json:"state"`
	}, location string,
	) {
		t.Helper()
		status, header, text := s.call(token, method, base+path, body)
		if status != want {
			t.Fatalf("%s %s %s: %d %s, want %d", method, path, body, status, text, want)
		}
		s.has(text, words...)
		_ = json.Unmarshal([]byte(text), &r)
		return r, header.Get("Location")
	}
	admin := strings.TrimSpace(secret)
	ask(strings.TrimSpace(operator), http.MethodPost, "/api/v1/pipelines", askBodies, http.StatusForbidden)
	_, location := ask(admin, http.MethodPost, "/api/v1/pipelines?wait=60s&dry_run=true", askBodies, http.StatusOK, `"planned"`)
	ask(admin, http.MethodGet, location, "", http.StatusOK, `"planned"`, `"rows":3`, "bodies_embedding")
	ask(admin, http.MethodDelete, "/api/v1/pipelines/bodies?dry_run=true", "", http.StatusBadRequest,
		"there is no pipeline")
	r, _ := ask(admin, http.MethodPost, "/api/v1/pipelines?wait=60s", askBodies, http.StatusOK)
	if r.State != "done" {
		t.Errorf("%+v", r)
	}
	s.vectorsOf("bodies_embedding", 3)
	ask(admin, http.MethodPost, "/api/v1/pipelines?wait=60s", `{"name": "bad", "table": "docs", "tabel": "x"}`, http.StatusUnprocessableEntity, "tabel")
	ask(admin, http.MethodPost, "/api/v1/pipelines", `{"columns": ["title"]}`, http.StatusBadRequest, "name")
	ask(admin, http.MethodPost, "/api/v1/pipelines?wait=60s", `{"table": "docs"}`, http.StatusUnprocessableEntity,
		"public.docs", "columns", "into")
	ask(admin, http.MethodPost, "/api/v1/pipelines", `[]`, http.StatusUnprocessableEntity)
	// What a token asks for computes only, whatever the role may.
	ask(admin, http.MethodPost, "/api/v1/pipelines?wait=60s", `{"name": "bad", "table": "docs", "text": "pg_read_file('/etc/passwd')", "into": {"table": "bad_embedding"}}`,
		http.StatusUnprocessableEntity, "pg_read_file")
	ask(admin, http.MethodPatch, "/api/v1/pipelines/bodies?wait=60s", `{"where": "id > 1", "text": "lower(body)", "columns": null}`, http.StatusOK)
	s.vectorsOf("bodies_embedding", 2)
	ask(admin, http.MethodPatch, "/api/v1/pipelines/docs", `{"where": "id > 1"}`, http.StatusConflict, file)
	ask(admin, http.MethodDelete, "/api/v1/pipelines/docs", "", http.StatusConflict, file)
	// Its labels choose it in the lists.
	ask(admin, http.MethodPatch, "/api/v1/pipelines/bodies?wait=60s", `{"labels": {"project": "helpdesk"}}`, http.StatusOK)
	s.does(create(strings.Replace(askTitles, "{", `{"labels": {"project": "shop"}, `, 1)))
	s.stands("titles", health.UpToDate)
	for project, want := range map[string]string{"helpdesk": "bodies", "shop": "titles"} {
		status, _, text := s.call(admin, http.MethodGet, base+"/api/v1/pipelines?pipeline=label:project="+project, "")
		var list struct {
			Pipelines []struct {
				Name   string            `json:"name"`
				Labels map[string]string `json:"labels"`
			} `json:"pipelines"`
		}
		if err := json.Unmarshal([]byte(text), &list); err != nil || len(list.Pipelines) != 1 ||
			list.Pipelines[0].Name != want || list.Pipelines[0].Labels["project"] != project {
			t.Errorf("of project %s: %d %s, want %s alone", project, status, text, want)
		}
		ask(admin, http.MethodGet, "/api/v1/tasks?state=finished&pipeline=label:project="+project, "", http.StatusOK, want)
		ask(admin, http.MethodGet, "/api/v1/audit?pipeline=label:project="+project, "", http.StatusOK, want)
	}
	s.does("drop_pipeline('titles')")
	ask(admin, http.MethodDelete, "/api/v1/pipelines/bodies?wait=60s&dry_run=true", "", http.StatusOK, "vectors stay")
	ask(admin, http.MethodPatch, "/api/v1/pipelines/bodies?wait=60s&dry_run=true", `{"tabel": "x"}`, http.StatusUnprocessableEntity, "tabel")
	r, location = ask(admin, http.MethodDelete, "/api/v1/pipelines/bodies?wait=0s", "", http.StatusAccepted)
	if want := fmt.Sprintf("/api/v1/requests/%d", r.ID); location != want {
		t.Errorf("look at %s, want %s", location, want)
	}
	s.comesTo(r.ID, "done")
	ask(admin, http.MethodGet, location, "", http.StatusOK, `"done"`)
	ask(admin, http.MethodGet, "/api/v1/requests", "", http.StatusOK, `"refused"`)
	ask(admin, http.MethodGet, "/api/v1/requests/999", "", http.StatusNotFound)
	said := testenv.Value[string](s.db, "SELECT DISTINCT said_by FROM embedsidecar.requests WHERE said_by <> ''")
	s.has(said, "ops")
	d.end(syscall.SIGTERM, 0)
}

// call sends a request to a listener.
func (s *stage) call(token, method, address, body string) (status int, header http.Header, text string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, answer.Header, string(content)
}

// dying starts a sidecar that is killed at a place.
func (s *stage) dying(place string, args ...string) *daemon {
	s.t.Helper()
	return s.prepared(func(c *exec.Cmd) { c.Env = append(c.Env, failpoint.Env+"="+place+"=kill") },
		append([]string{"run"}, args...)...)
}
