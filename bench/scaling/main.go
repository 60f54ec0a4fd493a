// Command bench-scaling measures how the remote embedder shares work out to replicas of one model: the real plugin in
// a process of its own, called as the sidecar calls it, against stub servers in this process. A stub computes
// nothing: each request takes a fixed time in one of a few slots, as on a card of its own, so what is measured is the
// way there and not the model.
//
// `make bench-scaling` builds what it needs and runs it. It judges nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/host"
	"github.com/embedsidecar/embedsidecar/plugins/remote/remotetest"
)

// options are the flags.
type options struct {
	plugin   string
	replicas []int
	service  time.Duration // of a request
	slots    int           // of a replica
	batch    int           // texts in a request
	dims     int
	callers  int // calls of the sidecar at the same time
	rows     int // texts in a call
	length   time.Duration
	rounds   int
}

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err == nil {
		err = measure(ctx, o, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-scaling: error:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be undone
	}
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("bench-scaling", flag.ContinueOnError)
	f.StringVar(&o.plugin, "plugin", "bin/plugins/embedsidecar-remote", "the plugin")
	replicas := f.String("replicas", "1,2,4", "numbers of replicas to measure")
	f.DurationVar(&o.service, "service", 50*time.Millisecond, "time a replica takes for a request")
	f.IntVar(&o.slots, "slots", 2, "requests a replica works on at a time; the others wait")
	f.IntVar(&o.batch, "batch", 32, "texts in a request")
	f.IntVar(&o.dims, "dims", 384, "width of the vectors")
	f.IntVar(&o.callers, "callers", 3, "calls at a time, as the sidecar's workers make them")
	f.IntVar(&o.rows, "rows", 256, "texts in a call")
	f.DurationVar(&o.length, "time", 4*time.Second, "length of each measurement")
	f.IntVar(&o.rounds, "rounds", 3, "measurements of each number of replicas")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	for text := range strings.SplitSeq(*replicas, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 64 {
			return o, fmt.Errorf("--replicas: expected numbers from 1 to 64, not %q", text)
		}
		o.replicas = append(o.replicas, n)
	}
	return o, nil
}

// figure is what one measurement gives.
type figure struct {
	rate   float64 // texts/s
	failed int     // calls
	p50    time.Duration
	shares []int // requests of each replica
}

func measure(ctx context.Context, o options, out io.Writer) error {
	fmt.Fprintf(out, "%d CPUs; a replica serves %d requests at a time, each of %d texts in %s: at most %.0f texts/s\n",
		runtime.NumCPU(), o.slots, o.batch, o.service, o.ideal(1))
	fmt.Fprintf(out, "%d calls of %d texts at a time, %d dims, %d rounds of %s, medians\n\n", o.callers, o.rows, o.dims,
		o.rounds, o.length)
	fmt.Fprintf(out, "%-26s %10s %10s %10s %8s   %s\n", "", "texts/s", "of ideal", "call p50", "failed",
		"requests of each replica")
	results := map[int][]figure{}
	for range o.rounds {
		for _, n := range o.replicas { // interleaved: what else the machine does falls on all alike
			f, err := run(ctx, o, n, 0)
			if err != nil {
				return err
			}
			results[n] = append(results[n], f)
		}
	}
	for _, n := range o.replicas {
		slices.SortFunc(results[n], func(a, b figure) int { return int(a.rate - b.rate) })
		printFigure(out, fmt.Sprintf("replicas: %d", n), results[n][len(results[n])/2], o.ideal(n))
	}
	if most := slices.Max(o.replicas); most > 1 {
		f, err := run(ctx, o, most, o.length/3)
		if err != nil {
			return err
		}
		ideal := o.ideal(most)/3 + o.ideal(most-1)*2/3
		printFigure(out, fmt.Sprintf("%d, one dies after a third", most), f, ideal)
	}
	return nil
}

func printFigure(out io.Writer, what string, f figure, ideal float64) {
	fmt.Fprintf(out, "%-26s %10.0f %9.0f%% %10s %8d   %v\n", what, f.rate, 100*f.rate/ideal, f.p50.Round(time.Millisecond),
		f.failed, f.shares)
}

// ideal is what so many replicas can give.
func (o options) ideal(n int) float64 {
	return float64(n*o.slots*o.batch) / o.service.Seconds()
}

// run measures once. With dies, the last replica drops every connection from then on.
func run(ctx context.Context, o options, n int, dies time.Duration) (figure, error) {
	var dead atomic.Bool
	var urls []string
	var served []*atomic.Int64
	for i := range n {
		stub, count := &remotetest.Server{Dialect: "openai", Dims: o.dims, Slots: o.slots, Service: o.service},
			&atomic.Int64{}
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if i == n-1 && dead.Load() {
				remotetest.Drop(w, r)
			}
			count.Add(1)
			stub.ServeHTTP(w, r)
		}))
		server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // dropped connections are meant
		server.Start()
		defer server.Close()
		urls, served = append(urls, server.URL+"/v1"), append(served, count)
	}
	const prefix = "EMBEDSIDECAR_PLUGIN_REMOTE_"
	h, err := host.New(host.Options{Path: o.plugin, Env: map[string]string{
		prefix + "DIALECT": "openai", prefix + "URL": strings.Join(urls, " "), prefix + "MODEL": "stub",
		prefix + "DIMS":        strconv.Itoa(o.dims),
		prefix + "BATCH_TEXTS": strconv.Itoa(o.batch),
	}})
	if err != nil {
		return figure{}, err
	}
	defer func() { _ = h.Close() }()
	if _, err := embedFor(ctx, h, o, o.length/4); err != nil { // connections, and how many requests are good at a time
		return figure{}, err
	}
	for _, s := range served {
		s.Store(0)
	}
	if dies > 0 {
		timer := time.AfterFunc(dies, func() { dead.Store(true) })
		defer timer.Stop()
	}
	f, err := embedFor(ctx, h, o, o.length)
	for _, s := range served {
		f.shares = append(f.shares, int(s.Load()))
	}
	return f, err
}

// embedFor keeps the plugin busy and counts the vectors.
func embedFor(ctx context.Context, h *host.Host, o options, length time.Duration) (figure, error) {
	var (
		mu    sync.Mutex
		done  int
		f     figure
		times []time.Duration
		last  error
		wg    sync.WaitGroup
	)
	texts := make([]string, o.rows)
	for i := range texts {
		texts[i] = fmt.Sprintf("row %d of a table, with as many words as a title has", i)
	}
	began := time.Now()
	for range o.callers {
		wg.Go(func() {
			for time.Since(began) < length && ctx.Err() == nil {
				start := time.Now()
				results, err := h.Embed(ctx, embed.Document, texts)
				good := 0
				for _, r := range results {
					if r.Err == nil {
						good++
					}
				}
				mu.Lock()
				done += good
				times = append(times, time.Since(start))
				if err != nil || good < len(texts) {
					f.failed++
					last = err
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if done == 0 {
		return f, fmt.Errorf("nothing was embedded: %w", errors.Join(last, ctx.Err()))
	}
	f.rate = float64(done) / time.Since(began).Seconds()
	slices.Sort(times)
	f.p50 = times[len(times)/2]
	return f, nil
}
