package main

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// state returns what status says of a pipeline.
func (s *stage) state(name string) report.Pipeline {
	s.t.Helper()
	stdout, _ := s.run(0, "status", "-o", "json")
	for _, p := range decoded[report.Status](s.t, stdout).Pipelines {
		if p.Name == name {
			return p
		}
	}
	s.t.Fatalf("no pipeline %s in %s", name, stdout)
	return report.Pipeline{}
}

// becomes waits until a pipeline is in a state, for a reason that holds the words.
func (s *stage) becomes(name string, want health.Code, words ...string) {
	s.t.Helper()
	testenv.Eventually(s.t, waitTimeout, func() (bool, string) {
		p := s.state(name)
		for _, word := range words {
			if !strings.Contains(p.Health().String(), word) {
				return false, fmt.Sprintf("%s: %s lacks %q", p.State, p.Health(), word)
			}
		}
		return p.State == want, fmt.Sprintf("%s: %s, want %s", p.State, p.Health(), want)
	})
}

// TestP10_StatusSaysWhyAPipelineCannotWork: what only a running sidecar knows is known to status in another shell, to
// the metrics, the probe and wait, in the same words.
func TestP10_StatusSaysWhyAPipelineCannotWork(t *testing.T) {
	t.Parallel()
	s := newStage(t, 20)
	s.run(0, "init", "--table", "docs", "--columns", "title,body", "--into", "embedding")
	s.becomes("public.docs", health.NoSidecar, "no sidecar runs for slot "+s.slot, "embedsidecar run")

	// A plugin that this sidecar does not know.
	s.db.MustExec("UPDATE embedsidecar.pipeline SET plugin = 'nope'")
	d := s.start("--ops-listen", "127.0.0.1:0", "--no-init")
	base := "http://" + d.logged("probes and metrics listen", "address")
	s.becomes("public.docs", health.PluginUnknown, "nope")
	s.shows(base, health.PluginUnknown, "nope")
	s.inTime(exitTimeout, "--timeout", []string{"wait", "--caught-up"}, "nope")
	d.end(syscall.SIGTERM, 0)
	s.becomes("public.docs", health.NoSidecar)

	// One that dies of each text.
	s.db.MustExec("UPDATE embedsidecar.pipeline SET plugin = 'fake'")
	healthy := s.environ
	s.set("EMBEDSIDECAR_PLUGIN_FAULTS=unavailable-every=1")
	d = s.start("--ops-listen", "127.0.0.1:0", "--no-init")
	base = "http://" + d.logged("probes and metrics listen", "address")
	s.becomes("public.docs", health.PluginDown, "the embedder gives no answer")
	s.shows(base, health.PluginDown, "gives no answer")
	if p := s.state("public.docs"); p.CoverageOr(-1) != 0 {
		t.Errorf("coverage %v with an embedder that has never answered", p.CoverageOr(-1))
	}
	stdout, _ := s.run(0, "tasks", "list", "--state", "failed", "--state", "retrying", "-o", "json")
	if rows := decoded[map[string][]report.Task](t, stdout)["tasks"]; len(rows) > 0 && (rows[0].State != "retrying" ||
		rows[0].ScheduledAt == nil) {
		t.Errorf("rows that are to be tried again: %+v", rows)
	}
	// Killed, it leaves no word; its row must not be believed.
	if err := d.cmd.Process.Signal(os.Kill); err != nil {
		t.Fatal(err)
	}
	<-d.done
	s.becomes("public.docs", health.NoSidecar, "20 rows waiting")

	s.environ = healthy
	d = s.start("--ops-listen", "127.0.0.1:0", "--no-init")
	base = "http://" + d.logged("probes and metrics listen", "address")
	s.run(0, "wait", "--caught-up")
	s.becomes("public.docs", health.UpToDate)
	if p := s.state("public.docs"); p.CoverageOr(-1) != 1 || p.Known != 20 || p.ScanSeen != 20 || p.ScanExpected != 20 {
		t.Errorf("%+v", p)
	}
	s.shows(base, health.UpToDate, "")
	s.run(0, "pause", "public.docs")
	s.becomes("public.docs", health.Paused, "embedsidecar resume public.docs")
	s.run(0, "resume", "public.docs")
	s.db.MustExec("ALTER TABLE docs DROP COLUMN body")
	s.becomes("public.docs", health.Misconfigured, "body")
	s.shows(base, health.Misconfigured, "body")
	d.end(syscall.SIGTERM, 0)
}

// TestP10_StatusSaysThatAStreamIsStuck: the role that streams may not replicate any more, so nobody sees what
// changes. status in another shell, as a table and as JSON, the probe, the metrics and wait tell the same.
func TestP10_StatusSaysThatAStreamIsStuck(t *testing.T) {
	t.Parallel()
	s := newStage(t, 20)
	s.run(0, "init", "--table", "docs", "--columns", "title,body", "--into-table", "docs_embedding")
	role := s.db.Role("REPLICATION")
	s.set("EMBEDSIDECAR_STREAM_URL=" + s.db.URL(role))
	d := s.start("--ops-listen", "127.0.0.1:0", "--no-init")
	base := "http://" + d.logged("probes and metrics listen", "address")
	s.run(0, "wait", "--caught-up")
	s.shows(base, health.UpToDate, "")

	s.db.MustExecSuper("ALTER ROLE " + role + " NOREPLICATION")
	s.db.MustExecSuper("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active",
		s.slot)
	const words = "cannot stream since"
	s.becomes("public.docs", health.StreamStuck, words)
	s.db.MustExec("UPDATE docs SET body = 'unseen' WHERE id = 1")
	s.shows(base, health.StreamStuck, words)
	stdout, _ := s.run(0, "status")
	if !strings.Contains(stdout, "stream stuck") || !strings.Contains(stdout, words) || !strings.Contains(stdout,
		"slot "+s.slot+": stream stuck") {
		t.Errorf("status:\n%s", stdout)
	}
	stdout, _ = s.run(exitFailed, "check")
	if !strings.Contains(stdout, "slot: stream stuck") || !strings.Contains(stdout, words) {
		t.Errorf("check:\n%s", stdout)
	}
	s.inTime(exitTimeout, "--timeout", []string{"wait", "--caught-up"}, words)

	s.db.MustExecSuper("ALTER ROLE " + role + " REPLICATION")
	s.run(0, "wait", "--caught-up")
	s.becomes("public.docs", health.UpToDate)
	s.shows(base, health.UpToDate, "")
	d.end(syscall.SIGTERM, 0)
}

// shows checks that probe and metrics of a sidecar tell a state; words: what keeps the pipeline from work, "": nothing.
// The sidecar is not ready only where that is its own trouble: its stream.
func (s *stage) shows(base string, code health.Code, words string) {
	s.t.Helper()
	testenv.Eventually(s.t, waitTimeout, func() (bool, string) {
		status, body := get(s.t, base+"/readyz?verbose")
		want := http.StatusOK
		if code == health.StreamStuck {
			want = http.StatusServiceUnavailable
		}
		good := status == want && words == "" || status == want &&
			strings.Contains(body, "[-]pipeline public.docs: "+code.Word()) && strings.Contains(body, words)
		return good, fmt.Sprintf("readyz %d %s, want %s", status, body, code)
	})
	line := fmt.Sprintf(`embedsidecar_pipeline_state{pipeline="public.docs",source="%s",state="%s"} 1`, s.db.Name, code)
	testenv.Eventually(s.t, waitTimeout, func() (bool, string) {
		_, body := get(s.t, base+"/metrics")
		return strings.Contains(body, line) && strings.Count(body, "embedsidecar_pipeline_state{") == len(health.Codes()),
			line + " is missing in " + body
	})
}

// TestStatus_WatchShowsHowFarABackfillIs: a backfill is as far as its rows are embedded; here one batch after the
// other, each of which takes a while.
func TestStatus_WatchShowsHowFarABackfillIs(t *testing.T) {
	t.Parallel()
	const rows = 6000
	s := newStage(t, rows)
	s.set(failpoint.Env + "=worker/before-embed=sleep(2s)")
	d := s.start("--table", "docs", "--columns", "body", "--into-table", "docs_embedding", "--workers", "1", "--set",
		"workers.batch_rows=64") // it takes minutes, if nobody ends it
	d.logged("streaming", "slot")
	s.becomes("public.docs", health.Backfill)
	w := s.background("status", "--watch", "--every", "50ms")
	shown := regexp.MustCompile(`public\.docs .* backfill [1-9][0-9]*%, [1-9][0-9]*/s, [0-9]`)
	bar := regexp.MustCompile(`(?m)^public\.docs  \[#+-+\] [0-9.]+%  [0-9]+ of 6000 rows, [0-9]+/s, about .* to go$`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return len(shown.FindAllString(w.text(), -1)) > 1 && bar.MatchString(w.text()), w.text()
	})
	if p := s.state("public.docs"); p.ScanExpected != rows || p.ScanSeen <= 0 || p.ScanSeen >= rows {
		t.Errorf("%+v", p)
	}
	w.end(os.Interrupt, 0)
	d.end(syscall.SIGKILL, -1)
}

// TestP10_ASidecarThatCannotRegisterIsSeen: where the server's disk is full nobody can store that he is there. His
// sessions tell of him.
func TestP10_ASidecarThatCannotRegisterIsSeen(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.run(0, "init", "--pipeline", "docs: title, body -> embedding")
	s.db.MustExecSuper(`CREATE FUNCTION no_space() RETURNS boolean LANGUAGE plpgsql AS $$BEGIN
		RAISE 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END$$;
		ALTER TABLE embedsidecar.worker ADD CONSTRAINT no_space CHECK (no_space()) NOT VALID`)
	d := s.start("--no-init")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return strings.Contains(d.text(), "register as a worker"), d.text()
	})
	s.becomes("public.docs", health.NoSidecar, "embedsidecar/", "why it could not register")
}

// TestP10_ASlowSetUpSaysWhatItWaitsFor: an event trigger runs in each statement of a set-up, which says so before long.
func TestP10_ASlowSetUpSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.db.MustExecSuper(`CREATE FUNCTION hold() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN
		WHILE NOT pg_try_advisory_xact_lock_shared(7) LOOP PERFORM pg_sleep(0.02); END LOOP; END$$;
		CREATE EVENT TRIGGER "slow one" ON ddl_command_end EXECUTE FUNCTION hold()`)
	conn, err := pgx.Connect(t.Context(), s.db.URL(testenv.Owner))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), `BEGIN; SELECT pg_advisory_xact_lock(7)`); err != nil {
		t.Fatal(err)
	}
	d := s.background("init", "--pipeline", "docs: title, body -> embedding", "--log-format", "json")
	s.has(d.logged("the set-up takes long", "waits_for"), "slow one")
	if _, err := conn.Exec(t.Context(), `COMMIT`); err != nil {
		t.Fatal(err)
	}
	<-d.done
	s.once(0)
}
