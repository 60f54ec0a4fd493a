// Command demo shows embedsidecar at work, from nothing: it starts a throw-away PostgreSQL, loads thousands of one-line
// descriptions of Debian packages, runs the sidecar with plain flags, edits, inserts and deletes rows meanwhile, prints
// how long their vectors took, and searches for three questions. Then it cleans up.
//
// With --break it kills the sidecar, the plugin and the server again and again while they work, and ends with
// `embedsidecar verify --deep`: nothing may be missing, stale or orphaned. `make demo` builds what it needs and runs it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// options are the flags.
type options struct {
	rows, pg, faults int
	broken, keep     bool
	bin              string // folder with embedsidecar and plugins/
}

func main() {
	var o options
	flag.IntVar(&o.rows, "rows", 7500, "texts to load")
	flag.IntVar(&o.pg, "pg", 0, "major version of PostgreSQL (default: the newest that tools/postgres.sh has fetched)")
	flag.BoolVar(&o.broken, "break", false, "kill the parts while they work, then verify")
	flag.IntVar(&o.faults, "faults", 12, "how often --break breaks something")
	flag.BoolVar(&o.keep, "keep", false, "at the end serve the dashboard until interrupted")
	flag.StringVar(&o.bin, "bin", filepath.Dir(os.Args[0]), "folder with embedsidecar and plugins/")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once, and what it started with it
	err := show(ctx, o)
	const failed, interrupted = 1, 130
	switch {
	case ctx.Err() != nil:
		os.Exit(interrupted) //nolint:gocritic // nothing is left to be undone
	case err != nil:
		fmt.Fprintf(os.Stderr, "demo: error: %v\n", err)
		os.Exit(failed)
	}
}
