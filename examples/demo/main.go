// Command demo shows embedsidecar at work, on real input and from nothing: it starts a throw-away PostgreSQL, loads
// thousands of one-line descriptions of Debian packages, runs the sidecar beside it with plain flags, edits, inserts
// and deletes rows meanwhile, says how long their vectors took, and asks for the rows nearest to three questions.
// Then it cleans up.
//
// With --break it kills the sidecar, the plugin and the server again and again while they work, and ends with
// `embedsidecar verify --deep`: nothing may be missing, stale or orphaned.
//
// `make demo` builds what it needs and runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const interrupted = 130

func main() { os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr)) }

func run(args, environ []string, stdout *os.File, stderr io.Writer) int {
	o, err := parse(args, environ, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	signal.Ignore(syscall.SIGPIPE) // whoever stops reading does not keep us from cleaning up
	out := newConsole(stdout)
	go func() {
		<-signals
		cancel(errInterrupted)
		out.say("\ninterrupted, cleaning up (again: at once)")
		<-signals
		os.Exit(interrupted) // everything that was started dies with this process
	}()
	err = show(ctx, cancel, o, environ, out)
	out.endProgress()
	if err == nil {
		return 0
	}
	// A Ctrl-C ends the programs of the server, too, and they may tell of it before the signal reaches us.
	_ = pause(ctx, 100*time.Millisecond)
	cause := context.Cause(ctx)
	if errors.Is(cause, errInterrupted) {
		return interrupted
	}
	if cause != nil && errors.Is(err, context.Canceled) {
		err = cause
	}
	complain(stderr, err)
	return 1
}
