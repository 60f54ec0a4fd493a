package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// state returns the status of a pipeline.
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

// becomes waits until a pipeline is in a state, for a reason that contains the words.
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

// TestP10_StatusSaysWhyAPipelineCannotWork: what only a running sidecar knows is shown in the same words by status in
// another shell, the metrics, the probe and wait.
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

	// A plugin that crashes on each text.
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
	// A killed sidecar cannot sign off; its row must not be believed.
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

// TestP10_StatusSaysThatAStreamIsStuck: the streaming role may no longer replicate, so changes are not seen. status in
// another shell, as a table and as JSON, the probe, the metrics and wait say the same.
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

// shows checks that probe and metrics of a sidecar show a state. words is what stops the pipeline; "": nothing. The
// sidecar is not ready only if its own stream is the problem.
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

// TestStatus_WatchShowsHowFarABackfillIs: the progress of a backfill counts embedded rows; here slow batches come one
// after another.
func TestStatus_WatchShowsHowFarABackfillIs(t *testing.T) {
	t.Parallel()
	const rows = 6000
	s := newStage(t, rows)
	s.set(failpoint.Env + "=worker/before-embed=sleep(2s)")
	d := s.start("--table", "docs", "--columns", "body", "--into-table", "docs_embedding", "--workers", "1", "--set",
		"workers.batch_rows=64") // takes minutes unless it is stopped
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

// TestStatus_PaintedOnATerminal: the first line of each frame says whether a user must act, and rates are measured
// between frames.
func TestStatus_PaintedOnATerminal(t *testing.T) {
	t.Parallel()
	c := &statusCommand{watch: true, paints: true, clocks: map[string]*report.Countdown{}}
	now, age := time.Date(2026, 11, 23, 1, 2, 3, 0, time.UTC), 12.0
	var d observe.Database
	painted := func(open int64, state health.Code, oldest *float64, after time.Duration, words ...string) {
		t.Helper()
		if len(d.Slots) > 0 {
			d.Pipelines = []observe.Pipeline{{Pipeline: report.Pipeline{
				Name: "docs", Plugin: "onnx", Model: "m", State: state, Works: state == health.Working,
				NeedsAct: state != health.Working, Pending: open, OldestSeconds: oldest, Coverage: new(0.5), Enabled: true,
				RowsEstimated: true, Failed: 2,
			}}}
		}
		var b bytes.Buffer
		env := (&environment{out: &output.Printer{Form: output.Text}}).onto(&b)
		if err := c.tell(env, &d, now.Add(after)); err != nil {
			t.Fatal(err)
		}
		for _, word := range words {
			if !regexp.MustCompile("(?m)" + word).MatchString(b.String()) {
				t.Errorf("after %s there is no %q in:\n%s", after, word, b.String())
			}
		}
		if bar := strings.Contains(b.String(), "["); bar != (open > 0) {
			t.Errorf("after %s, a bar is %t:\n%s", after, bar, b.String())
		}
	}
	painted(0, "", nil, 0, "^embedsidecar 2026-11-23 01:02:03  .* 0 pipelines, 0 rows to embed, 0 failed, 0 sidecars$",
		"embedsidecar init")
	d.Slots = []report.Slot{
		{Name: "s", State: report.Streamed, Reason: "streamed by one", LagBytes: 2048, RetainedBytes: 1 << 20},
	}
	d.Sidecars = []report.Sidecar{{Instance: "one", Stream: health.Streaming, Succeeded: 7, Version: "1.0.0"}}
	painted(100, health.Working, &age, 0)
	painted(80, health.Working, &age, time.Second)
	painted(60, health.Working, &age, 2*time.Second,
		"^embedsidecar .* all is well; 1 pipeline, 60 rows to embed, 2 failed, 1 sidecar$",
		`^docs +m +50\.0% \(est\.\) +0 +60 +0 +0 +2 +0 +12 s .* working$`,
		`^docs  \[########------------\] 40\.0%  40 of 100 rows, 20/s`,
		"^slot s: streamed by one, 2.0 kB behind, WAL kept 1.0 MB$", "^one +streaming +0 s ago +7 +0 +1.0.0$")
	painted(0, health.NoSidecar, nil, 3*time.Second, "attention: 1 pipeline; 1 pipeline, 0 rows", "^docs .* no sidecar$")
}

// TestP10_ASidecarThatCannotRegisterIsSeen: with a full disk on the server a sidecar cannot store its row. Its sessions
// show it.
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

// TestP10_ASlowSetUpSaysWhatItWaitsFor: an event trigger slows each statement of a set-up, which reports that soon.
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
	s.has(d.logged("set-up is waiting", "waits_for"), "slow one")
	if _, err := conn.Exec(t.Context(), `COMMIT`); err != nil {
		t.Fatal(err)
	}
	<-d.done
	s.once(0)
}

// TestP10_WhoLocksOurTablesIsNamed: while another session locks a table of ours, check and status name it, and report
// nothing that they could not read.
func TestP10_WhoLocksOurTablesIsNamed(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	s.once(0)
	s.db.MustExecSuper(`GRANT pg_read_all_stats TO ` + testenv.Owner)
	prepared := s.db.Name + "_prepared"
	for holder, lock := range map[string]string{
		"pid ": `LOCK TABLE embedsidecar.pipeline, embedsidecar.installation IN ACCESS EXCLUSIVE MODE`,
		"prepared transaction '" + prepared + "'": `BEGIN; LOCK TABLE embedsidecar.pipeline IN ACCESS EXCLUSIVE MODE;
			PREPARE TRANSACTION '` + prepared + `'`,
	} {
		release := func() { s.db.MustExec(`ROLLBACK PREPARED '` + prepared + `'`) }
		if holder == "pid " {
			release = s.open(lock)
			holder += strconv.Itoa(int(testenv.Value[int32](s.db, `SELECT pid FROM pg_locks WHERE mode = 'AccessExclusiveLock'
				AND relation = 'embedsidecar.pipeline'::regclass`)))
		} else {
			s.db.MustExec(lock)
		}
		holds := holder + " of role " + testenv.Owner
		const what = "holds AccessExclusiveLock on embedsidecar.pipeline since 20"
		stdout, _ := s.run(exitFailed, "check", "--table", "docs", "--columns", "title,body", "--into", "embedding")
		s.has(stdout, holds, what)
		if strings.Contains(stdout, "not set up") {
			t.Errorf("check tells what it could not read:\n%s", stdout)
		}
		_, stderr := s.run(exitConflict, "status")
		s.has(stderr, holds, what)
		release()
	}
	s.run(0, "status")
}
