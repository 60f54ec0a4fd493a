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
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	rows   int
	port   int
	pg     int
	faults int
	broken bool
	keep   bool
	bin    string // folder with embedsidecar and plugins/
	texts  string // CSV
}

const (
	minRows     = 100
	interrupted = 130
)

var errInterrupted = errors.New("interrupted")

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

func parse(args, environ []string, stderr io.Writer) (options, error) {
	var o options
	program, err := os.Executable()
	if err != nil {
		program = "bin/demo"
	}
	bin := filepath.Dir(program)
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.rows, "rows", 0, "texts to load (default: 7500 of the 8000; the others are inserted meanwhile)")
	flags.IntVar(&o.port, "port", 0, "port of the throw-away server (default: a free one)")
	flags.IntVar(&o.pg, "pg", 0, "major version of PostgreSQL (default: the newest that tools/postgres.sh has fetched)")
	flags.BoolVar(&o.broken, "break", false, "keep killing the parts while they work, then verify; so does BREAK=1")
	flags.BoolVar(&o.keep, "keep", false, "at the end leave all of it running, with its dashboard, until interrupted; so does KEEP=1")
	flags.IntVar(&o.faults, "faults", 12, "how often --break breaks something")
	flags.StringVar(&o.bin, "bin", bin, "folder with embedsidecar and plugins/")
	flags.StringVar(&o.texts, "texts", filepath.Join(filepath.Dir(bin), "examples", "debian-packages.csv"),
		"the texts, as CSV: id,name,section,summary")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	for name, flag := range map[string]*bool{"BREAK=": &o.broken, "KEEP=": &o.keep} {
		if at := slices.IndexFunc(environ, func(e string) bool { return strings.HasPrefix(e, name) }); at >= 0 {
			value := strings.TrimPrefix(environ[at], name)
			*flag = *flag || value != "" && value != "0"
		}
	}
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("what is %q? there are no arguments, only flags", flags.Arg(0))
	case o.rows != 0 && o.rows < minRows:
		err = fmt.Errorf("--rows: expected %d or more, not %d", minRows, o.rows)
	case o.port < 0 || o.port > 65535:
		err = fmt.Errorf("--port: expected 1 to 65535, not %d", o.port)
	case o.faults < 1:
		err = fmt.Errorf("--faults: expected 1 or more, not %d", o.faults)
	default:
		return o, nil
	}
	complain(stderr, err)
	return o, err
}

// failure is an error with ways out.
type failure struct {
	err   error
	hints []string
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func fail(err error, hints ...string) error { return &failure{err: err, hints: hints} }

func complain(w io.Writer, err error) {
	fmt.Fprintf(w, "demo: error: %s\n", strings.TrimSpace(err.Error()))
	hints := []string{}
	if f, ok := errors.AsType[*failure](err); ok {
		hints = append(hints, f.hints...)
	}
	if errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "No space left on device") {
		hints = append(hints, "free some space, or set TMPDIR to a folder on another disk")
	}
	for _, hint := range hints {
		fmt.Fprintf(w, "demo: hint: %s\n", hint)
	}
}

// stopwatch notes how long each phase took.
type stopwatch struct {
	start, last time.Time
	laps        []string
}

func newStopwatch() *stopwatch {
	now := time.Now()
	return &stopwatch{start: now, last: now}
}

func (s *stopwatch) lap(name string) time.Duration {
	now := time.Now()
	took := now.Sub(s.last)
	s.last = now
	s.laps = append(s.laps, fmt.Sprintf("%s %.1f s", name, took.Seconds()))
	return took
}

func (s *stopwatch) String() string {
	return fmt.Sprintf("%s; in all %.1f s", strings.Join(s.laps, ", "), time.Since(s.start).Seconds())
}
