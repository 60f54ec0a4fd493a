package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/status/ops"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestHealthcheck(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	d := s.start("--pipeline", "docs: title, body -> embedding", "--ops-listen", "127.0.0.1:0")
	address := d.logged("probes and metrics listen", "address")
	s.set("EMBEDSIDECAR_OPS_LISTEN=" + address)
	s.run(0, "healthcheck", "--timeout", "1m")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		out, err := s.command("healthcheck", "--ready", "--timeout", "1m").CombinedOutput()
		return err == nil && string(out) == "ok\n", string(out)
	})
	// A mistake made in the file while the sidecar runs does not make it unhealthy.
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	if err := os.WriteFile(broken, []byte("pipelines: [{"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.run(0, "healthcheck", "--config", broken, "--timeout", "1m")

	d.end(syscall.SIGTERM, 0)
	_, stderr := s.run(exitConnect, "healthcheck")
	s.has(stderr, "ask http://"+address+"/livez: ", "connection refused", "EMBEDSIDECAR_OPS_LISTEN")
	s.set("EMBEDSIDECAR_OPS_LISTEN=")
	_, stderr = s.run(exitUsage, "healthcheck")
	s.has(stderr, "no listener for probes is configured")
}

// A probe asks the listener and uses only its status, within the time limit.
func TestHealthcheck_Answers(t *testing.T) {
	t.Parallel()
	hold, held := context.WithCancel(t.Context())
	defer held()
	var check atomic.Pointer[ops.Check]
	server, err := ops.Listen(t.Context(), ops.Options{
		Listen: "127.0.0.1:0",
		Ready: func(ctx context.Context) []ops.Check {
			if found := check.Load(); found != nil {
				return []ops.Check{*found}
			}
			select {
			case <-hold.Done():
			case <-ctx.Done():
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(running) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	listen := []string{"EMBEDSIDECAR_OPS_LISTEN=" + server.Addr().String()}

	code, _, stderr := call(t, nil, listen, "healthcheck", "--ready", "--timeout", "50ms")
	if code != exitTimeout {
		t.Errorf("an answer that does not come: status %d: %s", code, stderr)
	}
	held()
	check.Store(&ops.Check{Name: "stream", Err: fmt.Errorf("no connection to the slot")})
	code, stdout, stderr := call(t, nil, listen, "healthcheck", "--ready", "--timeout", "1m")
	if want := "/readyz answers 503: [-]stream: no connection to the slot; not ready"; code != exitFailed ||
		stdout != "" || !strings.Contains(stderr, want) {
		t.Errorf("not ready: status %d, %q, %q lacks %q", code, stdout, stderr, want)
	}
	if code, stdout, _ := call(t, nil, listen, "healthcheck"); code != exitOK || stdout != "ok\n" {
		t.Errorf("alive: status %d, %q", code, stdout)
	}
}

// serviceManager listens on NOTIFY_SOCKET.
type serviceManager struct {
	t     *testing.T
	lines chan string
}

func newSystemd(t *testing.T) (*serviceManager, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sd") //nolint:usetesting // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	d := &serviceManager{t: t, lines: make(chan string, 10_000)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buffer := make([]byte, 4096)
		for {
			n, err := conn.Read(buffer)
			if err != nil {
				return
			}
			d.lines <- string(buffer[:n])
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-ended
	})
	return d, "NOTIFY_SOCKET=" + path
}

// hears waits for a message that contains some words, and returns the messages before it.
func (d *serviceManager) hears(words string) (before []string) {
	d.t.Helper()
	limit := time.After(waitTimeout)
	for {
		select {
		case line := <-d.lines:
			if strings.Contains(line, words) {
				return before
			}
			before = append(before, line)
		case <-limit:
			d.t.Fatalf("systemd does not hear %q, but %q", words, before)
		}
	}
}

func TestRun_TellsSystemd(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	manager, socket := newSystemd(t)
	s.set(socket)
	s.set("WATCHDOG_USEC=300000") // without WATCHDOG_PID it applies to every process
	d := s.start("--pipeline", "docs: title, body -> embedding")
	for _, line := range manager.hears("READY=1") {
		if strings.Contains(line, "STOPPING=1") {
			t.Errorf("before it was ready: %q", line)
		}
	}
	if !testenv.Value[bool](s.db, "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1)", s.slot) {
		t.Error("it was ready before the set-up was done")
	}
	manager.hears("WATCHDOG=1")
	manager.hears("WATCHDOG=1")
	d.end(syscall.SIGTERM, 0)
	manager.hears("STOPPING=1")
}

func TestServe_TellsSystemd(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0)
	manager, socket := newSystemd(t)
	s.set(socket)
	s.set("EMBEDSIDECAR_DATABASE_URL=")
	d := s.background("serve", "--http", "127.0.0.1:0", "--no-auth")
	manager.hears("READY=1")
	d.end(syscall.SIGTERM, 0)
	manager.hears("STOPPING=1")
}
