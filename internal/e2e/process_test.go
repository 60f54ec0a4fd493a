//go:build linux

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/canary"
)

// child is a program at work.
type child struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  string        // file with its standard error
	done chan struct{} // closed at its end
}

// start starts the sidecar's program with these arguments and variables. It ends with the test, however that ends.
func (r *rig) start(environ []string, args ...string) *child {
	r.t.Helper()
	return r.startPlain(append(r.environ(), environ...), args...)
}

// startPlain is start with nothing but these variables.
func (r *rig) startPlain(environ []string, args ...string) *child {
	r.t.Helper()
	r.started++
	c := &child{
		t: r.t, log: filepath.Join(r.dir, fmt.Sprintf("%d.log", r.started)), done: make(chan struct{}),
		cmd: exec.Command(filepath.Join(programs, "embedsidecar"), args...), // its end is up to the test
	}
	log, err := os.Create(c.log)
	if err != nil {
		r.t.Fatal(err)
	}
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.Dir = r.dir
	c.cmd.Env = environ
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the kernel watches the thread that started it: never unlocked, it ends with this goroutine
		defer func() { _ = log.Close() }()
		if err := c.cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		_ = c.cmd.Wait()
		close(c.done)
	}()
	if err := <-started; err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		select {
		case <-c.done:
		default:
			c.signal(syscall.SIGKILL)
			<-c.done
		}
		said, err := os.ReadFile(c.log)
		if err != nil || !canary.Search("embedsidecar "+strings.Join(args, " "), said) {
			r.t.Errorf("the output holds what it may not, or cannot be read: %v", err)
		}
		if r.t.Failed() {
			for line := range bytes.Lines(said) {
				if bytes.Contains(line, []byte("request failed")) {
					r.t.Logf("said: %s", line)
				}
			}
		}
	})
	return c
}

func (c *child) pid() int { return c.cmd.Process.Pid }

func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.t.Fatalf("signal %s to process %d: %v", s, c.pid(), err)
	}
}

// ended reports whether the process is gone.
func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// wait waits for its end and returns how it ended.
func (c *child) wait(timeout time.Duration) syscall.WaitStatus {
	c.t.Helper()
	select {
	case <-c.done:
	case <-time.After(timeout):
		c.t.Fatalf("process %d has not ended within %s:\n%s", c.pid(), timeout, c.tail())
	}
	return c.cmd.ProcessState.Sys().(syscall.WaitStatus)
}

// kill ends the process as kill -9 does.
func (c *child) kill() {
	c.t.Helper()
	c.mustLive()
	c.signal(syscall.SIGKILL)
	if s := c.wait(waitTimeout); s.Signal() != syscall.SIGKILL {
		c.t.Fatalf("process %d ended by itself: %v:\n%s", c.pid(), c.cmd.ProcessState, c.tail())
	}
}

// mustLive fails the test when the process has ended by itself.
func (c *child) mustLive() {
	c.t.Helper()
	if c.ended() {
		c.t.Fatalf("process %d ended by itself: %v:\n%s", c.pid(), c.cmd.ProcessState, c.tail())
	}
}

// terminate asks the process to end, and returns how long it took. It must end with status 0.
func (c *child) terminate() time.Duration {
	c.t.Helper()
	c.mustLive()
	begin := time.Now()
	c.signal(syscall.SIGTERM)
	if s := c.wait(waitTimeout); s.ExitStatus() != 0 {
		c.t.Errorf("SIGTERM: process %d ended with %v, want status 0:\n%s", c.pid(), c.cmd.ProcessState, c.tail())
	}
	return time.Since(begin)
}

// said reports whether the process has logged this.
func (c *child) said(what string) bool {
	b, err := os.ReadFile(c.log)
	return err == nil && bytes.Contains(b, []byte(what))
}

// times tells how often the process has logged this.
func (c *child) times(what string) int {
	c.t.Helper()
	b, err := os.ReadFile(c.log)
	if err != nil {
		c.t.Fatal(err)
	}
	return bytes.Count(b, []byte(what))
}

// last tells where in its log the process said this last; -1: it did not.
func (c *child) last(what string) int {
	c.t.Helper()
	b, err := os.ReadFile(c.log)
	if err != nil {
		c.t.Fatal(err)
	}
	return bytes.LastIndex(b, []byte(what))
}

// tail is the end of the process's log.
func (c *child) tail() string {
	b, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	const most = 3000
	if len(b) > most {
		b = b[len(b)-most:]
	}
	return string(b)
}

// peak returns the most memory the process has had so far, in KiB; 0 once it has ended.
func (c *child) peak() int {
	c.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.pid()))
	if err != nil && !c.gone() {
		c.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				c.t.Fatal(err)
			}
			return n
		}
	}
	// A process that ends gives its memory back first, which takes a while.
	testenv.Eventually(c.t, waitTimeout, func() (bool, string) {
		return c.gone(), fmt.Sprintf("no VmHWM in the status of process %d", c.pid())
	})
	return 0
}

// stopped reports whether the process stands still, as after a SIGSTOP.
func (c *child) stopped() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.pid()))
	return err == nil && bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" T"))
}

// gone reports whether the process has ended, reaped or not.
func (c *child) gone() bool { return c.ended() || !testenv.Running(c.pid()) }

// plugins returns the ids of living plugin processes of this rig's sidecars: those whose environment names the rig's
// folder.
func (r *rig) plugins() (ids []int) {
	r.t.Helper()
	mark := []byte("EMBEDSIDECAR_PLUGIN_CALLS=" + r.calls + "\x00")
	entries, err := os.ReadDir("/proc")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, entry := range entries {
		id, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// A process may end while it is looked at.
		environ, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		if err != nil || !bytes.Contains(append(environ, 0), mark) {
			continue
		}
		if program, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "comm")); err == nil &&
			strings.TrimSpace(string(program)) == "embedsidecar" {
			continue // the sidecar itself has the variable as well
		}
		ids = append(ids, id)
	}
	return ids
}
