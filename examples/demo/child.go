package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// child is a program that was started. It ends when this process does, however that ends (on Linux).
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed at the end, after err is set
	err  error
}

// startChild starts a program in a process group of its own, so that a Ctrl-C is ours to pass on.
func startChild(cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd, done: make(chan struct{})}
	cmd.SysProcAttr = childAttributes()
	started := make(chan error)
	go func() {
		// the kernel watches the thread that starts it; never unlocked, so it lives as long as this goroutine
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		c.err = cmd.Wait()
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

func (c *child) signal(sig os.Signal) error {
	if err := c.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", c.cmd.Path, err)
	}
	return nil
}

// kill ends it at once, as the kernel does when memory runs out.
func (c *child) kill() error {
	err := c.signal(syscall.SIGKILL)
	<-c.done
	return err
}

// stop asks it to end, and insists after a while.
func (c *child) stop(gracePeriod time.Duration) error {
	if err := c.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-c.done:
		return nil
	case <-time.After(gracePeriod):
		return errors.Join(fmt.Errorf("%s did not end within %s of SIGTERM and was killed", c.cmd.Path, gracePeriod), c.kill())
	}
}
