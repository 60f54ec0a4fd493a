package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// minRows are enough to show anything.
const minRows = 100

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
