// Command demo demonstrates embedsidecar. It starts a throw-away PostgreSQL, loads thousands of one-line descriptions
// of Debian packages, and runs the sidecar with plain flags. Meanwhile it edits, inserts and deletes rows and prints
// the latency of their vectors. Then it runs three searches and cleans up.
//
// With --break it repeatedly kills the sidecar, the plugin and the server, and ends with `embedsidecar verify --deep`:
// no vector may be missing, stale or orphaned. `make demo` builds what it needs and runs it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// options are the flags.
type options struct {
	rows   int
	pg     int
	faults int
	broken bool
	keep   bool
	bin    string // folder with embedsidecar and plugins/
	texts  string // CSV
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	const usage, failed, interrupted = 2, 1, 130
	o, err := parse(args, stderr)
	if err != nil {
		return usage
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program and its children immediately
	err = show(ctx, o, stdout)
	switch {
	case ctx.Err() != nil:
		return interrupted
	case err != nil:
		fmt.Fprintf(stderr, "demo: error: %v\n", err)
		return failed
	}
	return 0
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	program, err := os.Executable()
	if err != nil {
		return o, err
	}
	bin := filepath.Dir(program)
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.rows, "rows", 7500, "texts to load; the others of the file are inserted meanwhile")
	flags.IntVar(&o.pg, "pg", 0, "major version of PostgreSQL (default: the newest that tools/postgres.sh has fetched)")
	flags.BoolVar(&o.broken, "break", false, "kill the parts while they work, then verify")
	flags.BoolVar(&o.keep, "keep", false, "at the end serve the dashboard until interrupted")
	flags.IntVar(&o.faults, "faults", 12, "how often --break breaks something")
	flags.StringVar(&o.bin, "bin", bin, "folder with embedsidecar and plugins/")
	flags.StringVar(&o.texts, "texts", filepath.Join(filepath.Dir(bin), "examples", "debian-packages.csv"),
		"the texts, as CSV: id,name,section,summary")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 || o.rows < 1 || o.faults < 1 {
		err = fmt.Errorf("expected flags alone, --rows and --faults of 1 or more")
		fmt.Fprintf(stderr, "demo: error: %v\n", err)
	}
	return o, err
}
