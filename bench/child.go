package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// child is a program that runs until it is stopped.
type child struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed at the end, after err is set
	err  error
}

// start starts a program whose standard error goes to a log file, and standard output too unless cmd says otherwise.
func start(cmd *exec.Cmd, log string) (*child, error) {
	f, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	cmd.Stderr = f
	if cmd.Stdout == nil {
		cmd.Stdout = f
	}
	cmd.SysProcAttr = childAttributes()
	c := &child{cmd: cmd, log: log, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// the kernel watches the thread that starts it; never unlocked, so it lives as long as this goroutine
		runtime.LockOSThread()
		err := cmd.Start()
		_ = f.Close() // the child has its own
		started <- err
		if err == nil {
			c.err = cmd.Wait()
			close(c.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

func (c *child) cpu() time.Duration { return cpuTime(c.pid()) }

// end asks it to end.
func (c *child) end() error { return c.stop(syscall.SIGTERM) }

// stop ends it with a signal, and insists after a while.
func (c *child) stop(sig os.Signal) error {
	const gracePeriod = 30 * time.Second
	if err := c.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", c.cmd.Path, err)
	}
	select {
	case <-c.done:
		return nil
	case <-time.After(gracePeriod):
		_ = c.cmd.Process.Signal(syscall.SIGKILL)
		<-c.done
		return fmt.Errorf("%s did not end within %s of being told to and was killed: %s", c.cmd.Path, gracePeriod, c.tail())
	}
}

// tail returns the end of its log, for an error.
func (c *child) tail() string {
	const most = 2000
	b, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b[max(0, len(b)-most):]))
}

// alive returns an error if it has ended.
func (c *child) alive() error {
	select {
	case <-c.done:
		return fmt.Errorf("%s ended by itself (%w): %s", filepath.Base(c.cmd.Path), cmpErr(c.err), c.tail())
	default:
		return nil
	}
}

func cmpErr(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// output runs a program to its end and returns what it printed. It is killed when ctx ends.
func output(ctx context.Context, environ []string, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = environ
	cmd.SysProcAttr = childAttributes()
	var errs strings.Builder
	cmd.Stderr = &errs
	// The kernel watches the thread that starts it, so this one must not end before it does.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(program), err, strings.TrimSpace(errs.String()))
	}
	return string(out), nil
}
