package host

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// Output that a program wrote before its end is read, however late.
func TestLastWords_AreReadWhenTheTimeIsOver(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	said := strings.Repeat("a line of the last words\n", 100) // less than the smallest pipe
	if _, err := io.WriteString(w, said); err != nil {
		t.Fatal(err)
	}
	if err := r.SetReadDeadline(time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(&lastWords{pipe: r}) // w is still open, as if another process held it
	if string(got) != said || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d of %d bytes, %v", len(got), len(said), err)
	}
}

// A process that has already ended by itself does not count as killed by the host.
func TestKill_BlamesNobodyForAnEndOfItsOwn(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("/bin/sh", "-c", "exit 7")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{pid: cmd.Process.Pid}
	testenv.Eventually(t, 5*time.Minute, func() (bool, string) { return hasEnded(p.pid), "it has not ended" })
	p.kill("it could not be reached any more")
	if reason := p.killedFor(); reason != "" {
		t.Errorf("killed because %q", reason)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("it ended with %v", err)
	}

	cmd = exec.Command("/bin/sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p = &process{pid: cmd.Process.Pid}
	if hasEnded(p.pid) {
		t.Error("one that runs has ended")
	}
	p.kill("it hangs")
	_ = cmd.Wait()
	if reason := p.killedFor(); reason != "it hangs" {
		t.Errorf("killed because %q", reason)
	}
}
