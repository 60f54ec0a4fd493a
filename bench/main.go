// Command bench measures the cost and speed of embedsidecar. It compares every figure with a baseline from the same run
// on the same machine: the bare model, a bulk write of ready vectors, pg_recvlogical, a trigger with LISTEN and NOTIFY.
// It has no pass or fail. README.md in this folder explains the figures.
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
	run   func(ctx context.Context, p *place)
	asked bool // measured only when --only names it
	alone bool // it needs no server
}

var parts = []part{
	{name: "onnx", run: measureONNX},
	{name: "rows", run: measureRows},
	{name: "writers", run: measureWriters},
	{name: "catchup", run: measureCatchUp},
	{name: costPart, run: measureCost},
	{name: "queries", run: measureQueries},
	{name: "isolation", run: measureIsolation, asked: true},
	{name: "inserts", run: measureInserts, asked: true},
	{name: "memory", run: measureMemory, asked: true},
	{name: "embedder", run: measureEmbedder, asked: true, alone: true},
	{name: "scaling", run: measureScaling, asked: true, alone: true},
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
	context.AfterFunc(ctx, stop) // a second signal ends the program and its children immediately
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
	flags.StringVar(&o.bin, "bin", filepath.Dir(program), "folder with embedsidecar, bench-notify and plugins/")
	flags.StringVar(&o.python, "python", "", "a Python that has psycopg: the part cost then measures a NOTIFY worker in "+
		"Python, too; or that has sentence-transformers: the part embedder measures it")
	flags.StringVar(&o.weights, "weights", "", "folder of the default model with model.safetensors, for "+
		"sentence-transformers in the part embedder")
	flags.StringVar(&o.static, "static", "", "folder of a static model, which the part embedder measures, too")
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
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	chosen := slices.DeleteFunc(slices.Clone(parts), func(one part) bool { return !slices.Contains(o.only, one.name) })
	p, err := newPlace(ctx, o, slices.ContainsFunc(chosen, func(one part) bool { return !one.alone }), stderr)
	//nolint:contextcheck // it ends the server also after ctx has ended
	defer func() {
		cancel() // ends what a failed part has left running
		err = errors.Join(err, p.close())
	}()
	if err != nil {
		return err
	}
	r := result{Began: began.UTC().Truncate(time.Second), Machine: p.machine(), Smoke: o.smoke}
	for _, part := range chosen {
		start := time.Now()
		if err = try(func() { part.run(ctx, p) }); err != nil {
			err = fmt.Errorf("measure %s: %w", part.name, err)
			break // print what was measured so far
		}
		p.say("%s: %.0f s", part.name, time.Since(start).Seconds())
	}
	r.Sections, r.Seconds = p.sections, time.Since(began).Seconds()
	r.print(stdout)
	if o.json == "" || err != nil {
		return err
	}
	return r.write(o.json)
}
