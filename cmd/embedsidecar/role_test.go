package main

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestRun_RolesStandBesideEachOther: one process reads the slot and has no plugin, another embeds and never reads the
// slot. If either is missing, that is reported.
func TestRun_RolesStandBesideEachOther(t *testing.T) {
	t.Parallel()
	s := newStage(t, 20)
	flags := []string{"--table", "docs", "--columns", "title,body", "--into-table", "docs_embedding"}
	s.run(0, append([]string{"init"}, flags...)...)
	all := s.environ
	streams := func() *daemon {
		s.set("EMBEDSIDECAR_PLUGIN_DIR=" + t.TempDir())
		s.set("PATH=" + t.TempDir())
		d := s.start("--role", "stream", "--ops-listen", "127.0.0.1:0")
		s.environ = all
		d.logged("streaming", "slot")
		return d
	}
	stream := streams()
	s.becomes("public.docs", health.Disabled, "streams only")
	isReady := func(d *daemon) { // also a process that does one half
		t.Helper()
		ready := "http://" + d.logged("probes and metrics listen", "address") + "/readyz"
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			status, body := get(t, ready)
			return status == http.StatusOK, fmt.Sprintf("not ready: %d %s", status, body)
		})
	}
	isReady(stream)
	work := s.start("--role", "work", "--no-init", "--ops-listen", "127.0.0.1:0")
	isReady(work)
	caughtUp := func() {
		t.Helper()
		s.run(0, "wait", "--caught-up", "--timeout", waitTimeout.String())
		s.run(0, "verify", "--deep", "10")
		s.becomes("public.docs", health.UpToDate)
	}
	caughtUp()
	s.db.MustExec("UPDATE docs SET body = 'changed' WHERE id < 9; DELETE FROM docs WHERE id > 15")
	caughtUp()

	// Without the stream process nothing is lost, and a new one continues.
	stream.end(syscall.SIGKILL, -1)
	s.db.MustExec("UPDATE docs SET body = 'changed again' WHERE id < 5")
	s.becomes("public.docs", health.NoSidecar, "no sidecar streams")
	stream = streams()
	caughtUp()

	// Without the work process changes are queued.
	work.end(syscall.SIGTERM, 0)
	s.db.MustExec("UPDATE docs SET body = 'and again' WHERE id < 5")
	s.becomes("public.docs", health.Disabled, "4 rows waiting")
	work = s.start(append([]string{"--role", "work"}, flags...)...)
	caughtUp()
	work.end(syscall.SIGTERM, 0)
	stream.end(syscall.SIGTERM, 0)

	_, stderr := s.run(exitUsage, "run", "--role", "both")
	s.has(stderr, "--role: expected all, stream or work")
	_, stderr = s.run(exitUsage, "run", "--role", "work", "--once")
	s.has(stderr, "--once needs both roles")
}
