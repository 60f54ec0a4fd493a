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
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A part measures one section of figures.
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
	{"latency", measureLatency, false},
	{"queries", measureQueries, false},
	{"isolation", measureIsolation, true},
	{"inserts", measureInserts, true},
	{"retry", measureRetry, true},
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
		o                options
		only, neighbours string
	)
	program, err := os.Executable()
	if err != nil {
		program = filepath.Join("bin", "bench")
	}
	bin := filepath.Dir(program)
	var names, usual []string
	for _, p := range parts {
		names = append(names, p.name)
		if !p.asked {
			usual = append(usual, p.name)
		}
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&o.smoke, "smoke", false, "short runs: two minutes in place of half an hour")
	flags.StringVar(&o.json, "json", "", "write the figures to this file, too")
	flags.IntVar(&o.major, "pg", 0, "major version of PostgreSQL (default: the newest that tools/postgres.sh has fetched)")
	flags.StringVar(&only, "only", strings.Join(usual, ","), "what to measure: "+strings.Join(names, ", "))
	flags.StringVar(&neighbours, "neighbours", "",
		"which neighbours of the part isolation, as its table names them, with commas between (default: all)")
	flags.IntVar(&o.again, "rounds", 0,
		"how often everything that is a ratio is measured (default: 3 with --smoke, else 5)")
	flags.StringVar(&o.bin, "bin", bin, "folder with embedsidecar, bench-bare and plugins/")
	flags.StringVar(&o.texts, "texts", filepath.Join(filepath.Dir(bin), "examples", "debian-packages.csv"),
		"CSV with texts in its last column")
	flags.StringVar(&o.profile, "profile", "",
		"write a CPU profile of the sidecar to this file: it then runs inside of bench, in the part rows, or cost if that is the only one")
	flags.StringVar(&o.plot, "plot", "", "write the plot of the part cost to this file: CPU per row over the rate, SVG")
	flags.StringVar(&o.python, "python", "",
		"a Python that has psycopg: the part cost then measures a NOTIFY worker in Python, too")
	flags.Func("rates", "commits a second of the part cost, with commas between", func(v string) error {
		for s := range strings.SplitSeq(v, ",") {
			const most = 100_000
			rate, err := strconv.Atoi(strings.TrimSpace(s))
			if err != nil || rate < 1 || rate > most {
				return fmt.Errorf("expected numbers from 1 to %d, not %q", most, s)
			}
			o.rates = append(o.rates, rate)
		}
		return nil
	})
	flags.BoolVar(&o.keep, "keep-logs", false, "leave the logs of what was started where they are, and say where")
	o.server = maps.Clone(serverConfig)
	flags.Func("server", "setting of the server, NAME=VALUE; again for more", func(v string) error {
		name, value, ok := strings.Cut(v, "=")
		if !ok {
			return errors.New("want NAME=VALUE")
		}
		o.server[name] = value
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("what is %q? there are no arguments, only flags", flags.Arg(0))
	}
	for name := range strings.SplitSeq(only, ",") {
		name = strings.TrimSpace(name)
		if !slices.Contains(names, name) {
			return o, fmt.Errorf("--only: there is no %q, only %s", name, strings.Join(names, ", "))
		}
		o.only = append(o.only, name)
	}
	for name := range strings.SplitSeq(neighbours, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if known := neighbourNames(); !slices.Contains(known, name) {
			return o, fmt.Errorf("--neighbours: there is no %q, only %s", name, strings.Join(known, ", "))
		}
		o.named = append(o.named, name)
	}
	if o.again < 0 || o.again > 100 {
		return o, fmt.Errorf("--rounds: expected 1 to 100, not %d", o.again)
	}
	if o.profile != "" && !slices.Equal(o.only, []string{costPart}) {
		o.only = []string{"rows"}
	}
	return o, nil
}

func measure(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	if err := missing(o.bin); err != nil {
		return err
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

// programs are what the parts start, in the folder of --bin.
var programs = []string{
	"embedsidecar", "bench-bare", "bench-notify", filepath.Join("plugins", "embedsidecar-fake"),
	filepath.Join("plugins", "embedsidecar-onnx"),
}

// missing names the first program that is not there.
func missing(bin string) error {
	for _, name := range programs {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return fmt.Errorf("a program is missing: %w; make bench-smoke builds all of them", err)
		}
	}
	return nil
}
