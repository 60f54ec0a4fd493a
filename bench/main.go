// Command bench measures what embedsidecar costs and how fast it is. Every figure stands beside something measured in
// the same run on the same machine: the bare model, a bulk write of ready vectors, pg_recvlogical, a trigger with
// LISTEN and NOTIFY. It judges nothing. README.md in this folder says what each figure means.
//
// `make bench-smoke` builds what it needs and runs it.
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
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A part measures some sections of figures.
type part struct {
	name  string
	run   func(ctx context.Context, p *place) ([]section, error)
	asked bool // measured only when --only names it
}

var parts = []part{
	{"onnx", measureONNX, false},
	{"rows", measureRows, false},
	{"writers", measureWriters, false},
	{"catchup", measureCatchUp, false},
	{costPart, measureCost, false},
	{"queries", measureQueries, false},
	{"isolation", measureIsolation, true},
	{"inserts", measureInserts, true},
	{"memory", measureMemory, true},
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "bench: error: %s\n", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, o, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "bench: error: %s\n", strings.TrimSpace(err.Error()))
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (options, error) {
	var (
		o            options
		only, rates  string
		names, usual []string
	)
	for _, p := range parts {
		names = append(names, p.name)
		if !p.asked {
			usual = append(usual, p.name)
		}
	}
	program, err := os.Executable()
	if err != nil {
		return o, err
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&o.smoke, "smoke", false, "short runs: two minutes in place of half an hour")
	flags.BoolVar(&o.keep, "keep-logs", false, "leave the logs of what was started where they are, and say where")
	flags.StringVar(&o.json, "json", "", "write the figures to this file, too")
	flags.StringVar(&o.bin, "bin", filepath.Dir(program), "folder with embedsidecar, bench-bare and plugins/")
	flags.StringVar(&o.python, "python", "",
		"a Python that has psycopg: the part cost then measures a NOTIFY worker in Python, too")
	flags.IntVar(&o.major, "pg", 0, "major version of PostgreSQL (default: the newest that tools/postgres.sh has fetched)")
	flags.IntVar(&o.again, "rounds", 0,
		"how often everything that is a ratio is measured (default: 3 with --smoke, else 5; 1 of the part cost)")
	flags.StringVar(&only, "only", strings.Join(usual, ","), "what to measure: "+strings.Join(names, ", "))
	flags.StringVar(&rates, "rates", "", "commits a second of the part cost, with commas between")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 || o.again < 0 {
		return o, errors.New("expected flags alone, --rounds of 1 or more")
	}
	for name := range strings.SplitSeq(only, ",") {
		name = strings.TrimSpace(name)
		if !slices.Contains(names, name) {
			return o, fmt.Errorf("--only: there is no %q, only %s", name, strings.Join(names, ", "))
		}
		o.only = append(o.only, name)
	}
	for text := range strings.FieldsFuncSeq(rates, func(r rune) bool { return r == ',' || r == ' ' }) {
		rate, err := strconv.Atoi(text)
		if err != nil || rate < 1 {
			return o, fmt.Errorf("--rates: expected numbers from 1, not %q", text)
		}
		o.rates = append(o.rates, rate)
	}
	return o, nil
}

func (p *place) machine() machine {
	return machine{CPUs: runtime.NumCPU(), PostgreSQL: p.version, System: runtime.GOOS + "/" + runtime.GOARCH}
}

func measure(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	for _, name := range []string{
		"embedsidecar", "bench-bare", "bench-notify", "plugins/embedsidecar-fake", "plugins/embedsidecar-onnx",
	} {
		if _, err := os.Stat(filepath.Join(o.bin, name)); err != nil {
			return fmt.Errorf("a program is missing: %w; make bench-smoke builds all of them", err)
		}
	}
	began := time.Now()
	p, err := newPlace(ctx, o, stderr)
	if err != nil {
		return err
	}
	//nolint:contextcheck // it ends the server also after ctx has ended
	defer func() { err = errors.Join(err, p.close()) }()
	r := result{Began: began.UTC().Truncate(time.Second), Machine: p.machine(), Smoke: o.smoke}
	for _, part := range parts {
		if !slices.Contains(o.only, part.name) {
			continue
		}
		start := time.Now()
		sections, failed := part.run(ctx, p)
		r.Sections = append(r.Sections, sections...)
		if failed != nil {
			err = fmt.Errorf("measure %s: %w", part.name, failed)
			break // what was measured before is printed all the same
		}
		p.say("%s: %.0f s", part.name, time.Since(start).Seconds())
	}
	r.Seconds = time.Since(began).Seconds()
	r.print(stdout)
	if o.json == "" || err != nil {
		return err
	}
	return r.write(o.json)
}
