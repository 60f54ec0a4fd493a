package main

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP10_ATimeoutOfZeroLooksOnce: the answer is what is left now, and an idle streamer says so.
func TestP10_ATimeoutOfZeroLooksOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t, 5)
	s.run(0, "init", "--pipeline", "docs: title, body -> embedding")
	_, stderr := s.run(exitTimeout, "wait", "--caught-up", "--timeout", "0")
	s.has(stderr, "not caught up", "no sidecar runs")
	if left := s.drains(exitTimeout, "docs", "--timeout", "0"); left.Result != "not_in_time" || left.Note == "" {
		t.Errorf("left: %+v", left)
	}
	s.start("--no-init")
	s.run(0, "wait", "--caught-up")
	for _, what := range []string{"--caught-up", "docs"} { // on a busy machine the streamer may not answer in time
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			out, err := s.command("wait", what, "--timeout", "0", "-o", "json").CombinedOutput()
			told := strings.Contains(string(out), `"caught_up": true`) || strings.Contains(string(out), `"result": "drained"`)
			return err == nil && told, string(out)
		})
	}
}

// TestP10_AWaitSaysTheSameEachWay: a paused pipeline with a pending row is not caught up: in text, JSON, status and
// SQL, and even if the timeout ends before the reason is known.
func TestP10_AWaitSaysTheSameEachWay(t *testing.T) {
	t.Parallel()
	s := newStage(t, 4)
	s.once(0)
	s.run(0, "pause", "docs")
	s.db.MustExec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, lane, xid, first_lsn, last_lsn, committed_at)
		SELECT pipeline_id, '1', 1, '3', '0/1', '0/1', now() FROM embedsidecar.pipeline`)
	const why = "not caught up, and waiting does not help: inactive: public.docs"
	stdout, stderr := s.run(exitFailed, "wait", "--lsn", "0/1", "-o", "json")
	s.has(stdout, `"caught_up": false`, `"resting": [`)
	s.has(stderr, why)
	for _, sql := range []string{`SELECT embedsidecar.caught_up('0/1')`, `SELECT embedsidecar.wait_for('0/1', '50 ms')`} {
		if testenv.Value[bool](s.db, sql) {
			t.Errorf("%s: true", sql)
		}
	}

	conn, err := pgx.Connect(t.Context(), s.db.URL(testenv.Owner))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), `BEGIN; LOCK TABLE embedsidecar.worker`); err != nil { // only states read it
		t.Fatal(err)
	}
	longer(3*time.Second, func(limit time.Duration, last bool) bool {
		c := s.command("wait", "--lsn", "0/1", "--timeout", limit.String(), "-o", "json")
		out, _ := c.CombinedOutput() // its status tells
		got := c.ProcessState.ExitCode()
		if got == exitTimeout && !last {
			return false
		}
		if got != exitFailed {
			t.Errorf("status %d, want %d: %s", got, exitFailed, out)
		}
		s.has(string(out), `"caught_up": false`, why)
		return true
	})
}

// TestP10_RowsPutOffAreNotWaitedFor: waits ignore a row that is due at a later time, and report it.
func TestP10_RowsPutOffAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	s.once(0)
	s.db.MustExec(`SELECT embedsidecar.requeue('docs', ARRAY['2'], at => now() + interval '1 hour')`)
	_, stderr := s.run(exitFailed, "run", "--once", "--no-init")
	s.has(stderr, "1 row put off", "embedsidecar tasks requeue")
	s.start("--no-init")
	_, stderr = s.run(exitFailed, "wait", "--caught-up")
	s.has(stderr, "1 row put off", "embedsidecar tasks requeue")
	_, stderr = s.run(exitFailed, "wait", "docs")
	s.has(stderr, "1 row of public.docs put off", "embedsidecar tasks requeue")
	if !testenv.Value[bool](s.db, `SELECT embedsidecar.caught_up('0/1')`) {
		t.Error("by SQL it is not caught up")
	}
	stdout, _ := s.run(0, "status")
	if strings.Contains(stdout, "failed,") {
		t.Errorf("nothing has failed:\n%s", stdout)
	}
	if got := s.state("public.docs"); strings.Contains(got.Reason, "failed") {
		t.Errorf("nothing has failed: %s", got.Reason)
	}
}
