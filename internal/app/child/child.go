// Package child runs another program in the place of this one: with its input and its output, and signals go to it.
package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"github.com/embedsidecar/embedsidecar/internal/base/signals"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
)

// Program is another program, with its arguments.
type Program struct {
	Words          []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Env            []string
	Signals        <-chan os.Signal // those that are for it
}

// Check refuses a program that cannot be found.
func (p *Program) Check() error {
	_, err := exec.LookPath(p.Words[0])
	return err
}

// Run runs it and waits for its end, also when ctx is over: then it is told to end. It returns *EndedError when it did
// not end well.
func (p *Program) Run(ctx context.Context) error {
	select {
	case <-p.Signals:
		return signals.ErrInterrupted
	default:
	}
	c := exec.CommandContext(context.WithoutCancel(ctx), p.Words[0], p.Words[1:]...) // it is told to end, and waited for
	c.Stdin, c.Stdout, c.Stderr, c.Env = p.Stdin, p.Stdout, p.Stderr, p.Env
	if err := c.Start(); err != nil {
		return problem.New(problem.Usage, fmt.Errorf("start %s: %w", p.Words[0], err))
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	over := ctx.Done()
	for {
		select {
		case s := <-p.Signals:
			// What is typed at a terminal reaches the program by itself.
			if s != os.Interrupt && s != syscall.SIGQUIT || !hasTerminal() {
				_ = c.Process.Signal(s) // it may have ended
			}
		case <-over:
			over = nil
			_ = c.Process.Signal(syscall.SIGTERM) // it may have ended
		case err := <-ended:
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return status(p.Words[0], err)
		}
	}
}

// hasTerminal reports whether this process has a terminal from which it may be interrupted.
func hasTerminal() bool {
	f, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	_ = f.Close() // only read
	return true
}

// EndedError is the error of a program that did not end well. This one ends with its status, and complains of nothing
// but what went wrong besides.
type EndedError struct {
	Status int
	What   string
	Also   error
}

func (e *EndedError) Error() string { return e.What }

// Unwrap returns what went wrong besides.
func (e *EndedError) Unwrap() error { return e.Also }

// status is the error of a program that did not end well, with its exit status.
func status(name string, err error) error {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return err
	}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		what := fmt.Sprintf("%s was ended by a signal: %s", name, ws.Signal())
		return &EndedError{Status: signaled + int(ws.Signal()), What: what}
	}
	return &EndedError{Status: exit.ExitCode(), What: fmt.Sprintf("%s ended with status %d", name, exit.ExitCode())}
}

// signaled and the number of a signal are the exit status of what it has ended, as shells tell it.
const signaled = 128
