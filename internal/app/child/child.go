// Package child runs another program in place of this one. It passes on input, output and signals.
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
	Signals        <-chan os.Signal // to pass on
}

// Check returns an error if the program cannot be found.
func (p *Program) Check() error {
	_, err := exec.LookPath(p.Words[0])
	return err
}

// Run runs the program and waits for its end. If ctx ends first, Run sends SIGTERM and waits. It returns *EndedError if
// the program failed.
func (p *Program) Run(ctx context.Context) error {
	select {
	case <-p.Signals:
		return signals.ErrInterrupted
	default:
	}
	c := exec.CommandContext(context.WithoutCancel(ctx), p.Words[0], p.Words[1:]...) // Run sends SIGTERM and waits
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
			// A terminal sends its signals to the program itself.
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

// EndedError is the error of a program that failed. This process exits with the same status and reports only Also.
type EndedError struct {
	Status int
	What   string
	Also   error
}

func (e *EndedError) Error() string { return e.What }

// Unwrap returns what else went wrong.
func (e *EndedError) Unwrap() error { return e.Also }

// status returns the error of a failed program, with its exit status.
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

// signaled plus the signal number is the exit status of a program that a signal ended, as in shells.
const signaled = 128
