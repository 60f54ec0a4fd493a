package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
	programs "github.com/embedsidecar/embedsidecar/testenv/program"
)

func TestStory_FromNothingToSearchAndBack(t *testing.T) {
	t.Parallel()
	s := newStage(t, 300)
	_, stderr := s.once(0)
	s.has(stderr, "made schema embedsidecar", `made column "public"."docs"."embedding"`, "made publication", "made slot",
		`made pipeline "public.docs"`,
		`undo: ALTER TABLE "public"."docs" DROP COLUMN "embedding";`, "undo: DROP SCHEMA embedsidecar CASCADE;",
		"caught up with")
	if n := testenv.Value[int](s.db, "SELECT count(embedding) FROM docs"); n != 300 {
		t.Errorf("%d vectors", n)
	}
	s.db.MustExec("INSERT INTO docs SELECT i, 'title ' || i, '' FROM generate_series(301, 310) i; DELETE FROM docs WHERE id <= 5; UPDATE docs SET body = 'other' WHERE id = 6")
	if _, stderr := s.once(0); strings.Contains(stderr, "made ") || strings.Contains(stderr, "not configured") {
		t.Errorf("the second time: %s", stderr)
	}
	stdout, _ := s.run(0, "verify", "--deep", "1000", "-o", "json")
	got := decoded[map[string][]map[string]any](t, stdout)["pipelines"][0]
	want := map[string]any{
		"pipeline": "public.docs", "ok": true, "rows": 305.0, "wanted": 305.0, "covered": 305.0, "missing": 0.0, "stale": 0.0,
		"orphans": 0.0, "skipped": 0.0, "ignored": 0.0,
		"refused": 0.0, "sampled": 305.0, "differ": 0.0, "examples": []any{},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("verify (-want +got):\n%s", diff)
	}

	stdout, _ = s.run(0, "search", "public.docs", "title 7\n\nbody 7", "-k", "3", "-o", "json")
	hits := decoded[[]search.Hit](t, stdout)
	if len(hits) != 3 || hits[0].Key != "7" || *hits[0].Distance > 1e-6 || hits[0].Text != "title 7\n\nbody 7" ||
		*hits[1].Distance < *hits[0].Distance {
		t.Errorf("found %+v", hits)
	}
	stdout, _ = s.run(0, "search", "public.docs", "title 7\n\nbody 7", "-k", "1")
	s.has(stdout, "KEY  DISTANCE  TEXT\n7      0.0000  title 7 body 7\n")

	stdout, _ = s.run(0, "status", "-o", "json")
	status := decoded[report.Status](t, stdout)
	if len(status.Slots) != 1 || len(status.Pipelines) != 1 || status.Slots[0].Name != s.slot ||
		status.Pipelines[0].Rows != 305 || status.Pipelines[0].Known != 305 || status.Pipelines[0].Coverage != nil {
		t.Errorf("status %+v", status)
	}
	stdout, _ = s.run(0, "status")
	s.has(stdout, "slot "+s.slot+": no sidecar", "PIPELINE", "public.docs", "unknown", "no sidecar",
		"! public.docs: no sidecar runs for slot "+s.slot)

	stdout, _ = s.run(0, "check", "-o", "json")
	s.has(stdout, `"check": "wal_level"`, `"check": "embedder fake"`, `"check": "pipeline \"public.docs\""`)
	_, stderr = s.run(0, "init", "--pipeline", "docs: title, body -> embedding")
	s.has(stderr, "nothing to do")

	stdout, stderr = s.run(0, "uninstall", "--drop-embeddings")
	s.has(stdout, "SELECT pg_drop_replication_slot('"+s.slot+"');", `ALTER TABLE "public"."docs" DROP COLUMN "embedding";`,
		"DROP SCHEMA embedsidecar CASCADE;")
	s.has(stderr, "nothing was changed: run it with --yes")
	s.run(0, "status")
	_, stderr = s.run(0, "uninstall", "--yes")
	s.has(stderr, `vectors stay in "public"."docs"."embedding": --drop-embeddings`)
	_, stderr = s.run(exitNotSetUp, "status")
	s.has(stderr, "run embedsidecar init")
	if n := testenv.Value[int](s.db, "SELECT count(embedding) FROM docs"); n != 305 {
		t.Errorf("%d vectors are left", n)
	}
	_, stderr = s.run(0, "uninstall", "--yes")
	s.has(stderr, "nothing to remove", `vectors stay in "public"."docs"."embedding"`)
	stdout, _ = s.run(0, "uninstall", "--drop-embeddings", "--yes")
	s.has(stdout, `ALTER TABLE "public"."docs" DROP COLUMN "embedding";`)
	_, stderr = s.run(0, "uninstall", "--drop-embeddings", "--yes")
	s.has(stderr, "nothing to remove")
}

// TestRun_AsksBeforeALostSlotIsMadeAnew: with on_lost: stop, run and init refuse a new slot each time.
func TestRun_AsksBeforeALostSlotIsMadeAnew(t *testing.T) {
	t.Parallel()
	s := newStage(t, 5)
	s.once(0)
	s.db.MustExec("SELECT pg_drop_replication_slot($1)", s.slot)
	for _, command := range []string{"run", "run", "init"} {
		_, stderr := s.run(exitFailed, command, "--set", "slot.on_lost=stop", "--pipeline", "docs: title, body -> embedding")
		s.has(stderr, "error ES0301", "does not exist, and on_lost is stop", "embedsidecar run --set slot.on_lost=reconcile")
	}
	stdout, _ := s.run(0, "status")
	s.has(stdout, "slot lost", "if on_lost is stop: embedsidecar run --set slot.on_lost=reconcile, once")
	_, stderr := s.once(0, "--set", "slot.on_lost=reconcile")
	s.has(stderr, "gap found: creating a new slot")
	s.once(0, "--set", "slot.on_lost=stop")
}

// TestP10_AWaitForNoPipelineIsNotCaughtUp: a set-up in progress has made the slot, but no pipeline yet.
func TestP10_AWaitForNoPipelineIsNotCaughtUp(t *testing.T) {
	t.Parallel()
	s := newStage(t, 5)
	s.once(0)
	const passed = "0/1" // the slot is already past it
	s.run(0, "wait", "--lsn", passed)
	s.db.MustExecSuper("DELETE FROM embedsidecar.pipeline")
	_, stderr := s.run(exitNotSetUp, "wait", "--lsn", passed)
	s.has(stderr, "no pipeline of slot", "embedsidecar init")
}

func TestRun_UntilTold(t *testing.T) {
	t.Parallel()
	s := newStage(t, 50)
	d := s.start("--pipeline", "docs: title, body -> embedding", "--pipeline", "docs: title -> table docs_embedding",
		"--ops-listen", "127.0.0.1:0")
	base := "http://" + d.logged("probes and metrics listen", "address")
	plugin, err := strconv.Atoi(d.logged("plugin started", "pid"))
	if err != nil {
		t.Fatal(err)
	}
	d.logged("streaming", "slot")
	s.db.MustExec("UPDATE docs SET title = 'new ' || id")
	s.run(0, "wait", "--caught-up")
	s.run(0, "verify", "--deep", "100")

	if code, body := get(t, base+"/livez"); code != http.StatusOK {
		t.Errorf("livez: %d %s", code, body)
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		code, body := get(t, base+"/readyz?verbose")
		return code == http.StatusOK && strings.Contains(body, "[+]stream") && strings.Contains(body, "[+]plugin fake"),
			fmt.Sprintf("readyz: %d %s", code, body)
	})
	wanted := []string{
		`embedsidecar_replication_connected{source="` + s.db.Name + `"} 1`,
		`embedsidecar_plugin_up{plugin="fake",version="1.0.0"} 1`,
		`embedsidecar_up{source="` + s.db.Name + `"} 1`, `embedsidecar_coverage_ratio{pipeline="public.docs",source="` +
			s.db.Name + `"} 1`,
		`embedsidecar_tasks_finished_total{outcome="embedded",pipeline="public.docs:docs_embedding",source="` + s.db.Name +
			`"} `,
		`embedsidecar_changes_skipped_total{reason="own_write",source="` + s.db.Name + `"} `,
		"embedsidecar_freshness_seconds_count", "embedsidecar_embeddings_total",
		`embedsidecar_vector_index_state{pipeline="public.docs",source="` + s.db.Name + `",state="none"} 1`,
		`embedsidecar_vector_index_state{pipeline="public.docs",source="` + s.db.Name + `",state="ready"} 0`,
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) { // database metrics come after the first scrape
		_, body := get(t, base+"/metrics")
		for _, line := range wanted {
			if !strings.Contains(body, line) {
				return false, line + " is missing in " + body
			}
		}
		return true, ""
	})

	// A second one is on standby, is ready, and takes over.
	other := s.start("--ops-listen", "127.0.0.1:0", "--instance", "other")
	otherBase := "http://" + other.logged("probes and metrics listen", "address")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		code, body := get(t, otherBase+"/readyz?verbose")
		return code == http.StatusOK, body
	})
	stdout, _ := s.run(0, "status")
	s.has(stdout, "streamed by embedsidecar/")
	if _, stderr := s.run(exitConflict, "uninstall", "--yes"); !strings.Contains(stderr, "stop every sidecar first") {
		t.Error(stderr)
	}
	d.end(syscall.SIGTERM, 0)
	other.logged("streaming", "slot")
	s.db.MustExec("UPDATE docs SET title = 'newer ' || id")
	s.run(0, "wait", "--caught-up")
	other.end(os.Interrupt, 0)
	if testenv.Running(plugin) {
		t.Errorf("plugin %d is left", plugin)
	}
	if n := testenv.Value[int](s.db, "SELECT count(*) FROM embedsidecar.worker"); n != 0 {
		t.Errorf("%d workers are left in the registry", n)
	}
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func TestRun_WaitsForTheServer(t *testing.T) {
	t.Parallel()
	s := newStage(t, 5)
	proxy := testenv.StartProxy(t, s.db.Server.Addr())
	proxy.Refuse()
	s.at(s.db.URLVia(proxy.Addr(), testenv.Owner))
	d := s.start("--table", "docs", "--columns", "title", "--into", "embedding", "--ops-listen", "127.0.0.1:0")
	base := "http://" + d.logged("probes and metrics listen", "address")
	d.logged("no connection to the database yet", "error")
	if code, body := get(t, base+"/readyz?verbose"); code != http.StatusServiceUnavailable ||
		!strings.Contains(body, "starting") {
		t.Errorf("readyz: %d %s", code, body)
	}
	if code, body := get(t, base+"/livez"); code != http.StatusOK {
		t.Errorf("livez: %d %s", code, body)
	}
	if err := proxy.Accept(); err != nil {
		t.Fatal(err)
	}
	d.logged("streaming", "slot")
	d.end(syscall.SIGTERM, 0)

	proxy.Refuse()
	s.inTime(exitConnect, "database.connect_timeout", []string{
		"run", "--once", "--table", "docs", "--columns", "title", "--into",
		"embedding",
	}, "connection refused")
	waiting := s.start()
	waiting.logged("no connection to the database yet", "error")
	waiting.end(syscall.SIGTERM, 0)
	interrupted := s.start("--once")
	interrupted.logged("no connection to the database yet", "error")
	interrupted.end(syscall.SIGTERM, exitInterrupted)
}

// A starting sidecar waits for the session that blocks its set-up, and names it. It need not be restarted.
func TestRun_SetUpWaitsForOthers(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	if err := testenv.Migrate(t.Context(), s.db.Pool); err != nil {
		t.Fatal(err)
	}
	init := s.open(asInit)
	d := s.start("--table", "docs", "--columns", "title,body", "--into", "embedding")
	d.logged("waiting for another set-up", "reason")
	writer := s.open("SELECT pg_current_xact_id()") // before the set-up continues, which is quick
	init()
	d.logged("slot creation waits for open transactions", "transactions")
	writer()
	d.logged("streaming", "slot")
	s.run(0, "wait", "--caught-up")
	d.end(syscall.SIGTERM, 0)
}

func TestRun_LeastPrivilegedRole(t *testing.T) {
	t.Parallel()
	s := newStage(t, 20)
	s.run(0, "init", "--pipeline", "docs: title -> embedding", "--pipeline", "docs: body -> table docs_embedding")
	loaded, err := lookup.All(t.Context(), s.db.Pool)
	if err != nil {
		t.Fatal(err)
	}
	role := s.db.RunRole(loaded...)
	s.as(role)
	s.set("EMBEDSIDECAR_STREAM_URL=" + s.db.URL(s.db.StreamRole()))
	_, stderr := s.run(0, "run", "--once", "--pipeline", "docs: title -> embedding", "--pipeline",
		"docs: body -> table docs_embedding")
	if strings.Contains(stderr, "made ") {
		t.Error(stderr)
	}
	s.run(0, "verify", "--deep", "20")
	s.run(0, "check")
	s.run(0, "search", "public.docs", "title 1")

	_, stderr = s.run(exitPermission, "run", "--once", "--pipeline", "docs: title -> other")
	s.has(stderr, role, "let an owner or superuser run:\n", "\nALTER TABLE \"public\".\"docs\" ADD COLUMN \"other\"",
		"embedsidecar check lists everything")
	_, stderr = s.run(exitPermission, "pause")
	s.has(stderr, "permission denied")
	_, stderr = s.run(exitPermission, "uninstall", "--yes")
	s.has(stderr, "may not")

	stranger := s.db.Role("")
	s.as(stranger)
	_, stderr = s.run(exitPermission, "status")
	s.has(stderr, "GRANT")
}

func TestRun_ExitStatuses(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	for _, command := range [][]string{
		{"status"},
		{"wait", "--caught-up"},
		{"verify"},
		{"search", "docs", "x"},
		{"pause"},
		{"tasks", "retry"},
		{"run", "--no-init", "--table", "docs", "--columns", "title", "--into", "embedding"},
	} {
		_, stderr := s.run(exitNotSetUp, command...)
		s.has(stderr, "embedsidecar init")
	}
	_, stderr := s.run(exitUsage, "run", "--once")
	s.has(stderr, "there are no pipelines", "--table public.docs")
	_, stderr = s.run(exitUsage, "run", "--once", "--set", "enabled=false", "--table", "docs", "--columns", "title",
		"--into",
		"embedding")
	s.has(stderr, "disabled by --set")
	_, stderr = s.run(exitUsage, "run", "--once", "--table", "dcos", "--columns", "title", "--into", "embedding")
	s.has(stderr, "docs")
	_, stderr = s.run(exitUsage, "run", "--once", "--table", "docs", "--columns", "title", "--into", "embedding",
		"--plugin", "nope")
	s.has(stderr, "plugin", "nope")
	stdout, _ := s.run(exitFailed, "check", "--table", "docs", "--columns", "title", "--into", "embedding", "--plugin",
		"nope")
	s.has(stdout, "error  embedder nope", "error  schema embedsidecar", "error  slot")

	// A slot of another program.
	foreign := s.db.Slot()
	_, stderr = s.once(exitConflict, "--slot", foreign)
	s.has(stderr, "not ours", "--slot")

	s.once(0)
	_, stderr = s.run(exitUsage, "search", "public.doc", "x")
	s.has(stderr, "did you mean public.docs?")
	_, stderr = s.run(exitNotSetUp, "wait", "--caught-up", "--slot", "other")
	s.has(stderr, `slot "other" is not set up`, "there are: "+s.slot)
	_, stderr = s.run(exitNotSetUp, "run", "--no-init", "--pipeline", "docs: body -> other")
	s.has(stderr, "public.docs:other")
	s.db.MustExec("UPDATE embedsidecar.pipeline SET model = 'fake'")
	_, stderr = s.once(0, "--no-init", "--model", "other")
	s.has(stderr, "works as it is set up (--no-init): model (it was: fake)", "embedsidecar init changes it")
	_, stderr = s.run(0, "run", "--once", "--no-init", "--model", "other")
	s.has(stderr, `could take the model "other"`, "public.docs has")
	s.db.MustExec("UPDATE embedsidecar.pipeline SET model = ''")
	if _, stderr = s.once(0, "--no-init"); strings.Contains(stderr, "set up") {
		t.Errorf("a pipeline that is configured as it is set up is warned of: %s", stderr)
	}

	// No process streams.
	s.db.MustExec("UPDATE docs SET title = 'x' WHERE id = 1")
	s.inTime(exitTimeout, "--timeout", []string{"wait", "--caught-up"}, "not caught up with",
		"the latest changes are not read yet; no sidecar runs for slot "+s.slot, "hint: embedsidecar run")
	s.inTime(exitTimeout, "--timeout", []string{"wait", "--lsn", "FFFF/0"}, "the WAL of the server ends at")
	stdout, _ = s.run(exitFailed, "verify")
	s.has(stdout, "not ok")
	s.db.MustExec("UPDATE docs SET embedding = NULL WHERE id = 2")
	stdout, _ = s.run(exitFailed, "verify", "-o", "json", "public.docs")
	s.has(stdout, `"missing": 1`, `"stale": 1`, "2: no vector")

	// Another model.
	s.set("EMBEDSIDECAR_PLUGIN_DIMS=4")
	for _, command := range [][]string{
		{"search", "public.docs", "x"},
		{"verify", "--deep", "1"},
		{"run", "--once", "--no-init"},
	} {
		_, stderr = s.run(exitUsage, command...)
		s.has(stderr, "not the one its vectors were made with")
	}
	_, stderr = s.once(exitUsage)
	s.has(stderr, "public.docs")

	s.at("postgres://" + testenv.Owner + ":wrong-password@" + s.db.Server.Addr() + "/" + s.db.Name + "?sslmode=disable")
	_, stderr = s.once(exitConnect)
	s.has(stderr, "password authentication failed")
	s.at("postgres://" + testenv.Owner + ":wrong-password@127.0.0.1:1/db?sslmode=disable")
	_, stderr = s.run(exitConnect, "status", "-o", "json")
	if got := decoded[map[string]map[string]any](t, stderr)["error"]["exit_code"]; got != float64(exitConnect) {
		t.Errorf("exit_code %v", got)
	}
}

func TestRun_DeadLettersAndRetry(t *testing.T) {
	t.Parallel()
	s := newStage(t, 10)
	s.db.MustExec("UPDATE docs SET body = 'POISON' WHERE id = 3")
	s.set("EMBEDSIDECAR_PLUGIN_FAULTS=refuse-on=POISON")
	_, stderr := s.once(exitFailed, "--set", "retry.max_attempts=1")
	s.has(stderr, "1 row could not be embedded", "embedsidecar tasks retry")
	stdout, _ := s.run(0, "status")
	s.has(stdout, "! public.docs: 1 row given up, data refused, row 3: ")
	stdout, _ = s.run(exitFailed, "wait", "--lsn", "0/1", "-o", "json")
	s.has(stdout, `"caught_up": true`)

	s.set("EMBEDSIDECAR_PLUGIN_FAULTS=")
	results := func(args ...string) []verbs.Outcome {
		stdout, _ := s.run(0, append(args, "-o", "json")...)
		return decoded[map[string][]verbs.Outcome](t, stdout)["pipelines"]
	}
	for i, want := range []verbs.Outcome{
		ofDocs("would_be_retried", 1),
		ofDocs("retried", 1),
		ofDocs("nothing_to_retry", 0),
	} {
		args := []string{"tasks", "retry", "public.docs"}
		if i == 0 {
			args = append(args, "--dry-run")
		}
		if diff := cmp.Diff(want, told(results(args...)[0])); diff != "" {
			t.Errorf("retry (-want +got):\n%s", diff)
		}
	}
	s.once(0)
	s.run(0, "verify", "--deep", "10")
}

func TestRun_OneBrokenPipelineDoesNotKeepOthersFromWork(t *testing.T) {
	t.Parallel()
	s := newStage(t, 5)
	s.db.MustExec("CREATE TABLE other (id bigint PRIMARY KEY, body text); INSERT INTO other VALUES (1, 'x')")
	both := []string{"run", "--once", "--pipeline", "docs: title -> embedding", "--pipeline", "other: body -> embedding"}
	s.run(0, both...)
	s.db.MustExec("DROP TABLE other; UPDATE docs SET title = 'new ' || id")
	_, stderr := s.run(exitFailed, both...)
	s.has(stderr, "could not set up a pipeline", "public.other", "inactive: public.other")
	s.run(0, "verify", "public.docs", "--deep", "5")
	stdout, _ := s.run(exitFailed, "verify")
	s.has(stdout, "missing")
	stdout, _ = s.run(0, "status")
	s.has(stdout, "! public.other: ", "missing")
	_, stderr = s.run(exitFailed, "search", "public.other", "x")
	s.has(stderr, "cannot work")

	// A lone failing pipeline is an error, and so is a configuration mistake.
	_, stderr = s.run(exitUsage, "run", "--once", "--pipeline", "docs: titel -> embedding", "--pipeline",
		"other: body -> embedding")
	s.has(stderr, "titel")
	s.db.MustExec("DROP TABLE docs")
	_, stderr = s.run(exitUsage, both...)
	s.has(stderr, "public.docs", "public.other")
}

// An embedder that does not start does not stop other pipelines, even if only its own is configured.
func TestP5_APluginThatDoesNotStartKeepsNoOthersFromWork(t *testing.T) {
	t.Parallel()
	s := newStage(t, 5)
	s.once(0)
	file, plugin := s.toys()
	s.run(0, "init", "--config", file)
	if err := errors.Join(os.Remove(plugin), programs.Write(plugin, []byte("#!/bin/sh\nexit 1\n"))); err != nil {
		t.Fatal(err)
	}
	d := s.start("--config", file)
	d.logged("an embedder is unavailable: its pipelines wait", "error")
	s.db.MustExec("CREATE TABLE before AS SELECT id, embedding::text AS vector FROM docs")
	s.db.MustExec("UPDATE docs SET title = 'new ' || id, body = 'new ' || id")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		n := testenv.Value[int](s.db, "SELECT count(*) FROM docs JOIN before USING (id) WHERE embedding::text <> vector")
		return n == 5, fmt.Sprintf("%d rows of 5 have another vector", n)
	})
	s.run(0, "verify", "public.docs", "--deep", "5")
	d.end(syscall.SIGTERM, 0)

	// If nothing else could work, it is an error.
	s.run(0, "uninstall", "public.docs", "--yes")
	_, stderr := s.run(exitUsage, "run", "--config", file)
	s.has(stderr, `plugin "toy"`)
}
