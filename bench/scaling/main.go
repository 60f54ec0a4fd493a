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

// A replica serves a few requests at a time, each of so many texts in a fixed time.
const (
	service = 50 * time.Millisecond
	slots   = 2
	batch   = 32
	dims    = 384
	callers = 3 // calls at a time, as the sidecar's workers make them
)

// options are the flags.
type options struct {
	plugin       string
	rows, rounds int
	length       time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.plugin, "plugin", "bin/plugins/embedsidecar-remote", "the plugin")
	flag.IntVar(&o.rows, "rows", 256, "texts in a call")
	flag.IntVar(&o.rounds, "rounds", 3, "measurements of each number of replicas")
	flag.DurationVar(&o.length, "time", 4*time.Second, "length of each measurement")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench-scaling: error:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be undone
	}
}

// figure is what one measurement gives.
type figure struct {
	rate   float64 // texts/s
	failed int     // calls
	p50    time.Duration
	shares []int64 // requests of each replica
}

// ideal is what so many replicas can give.
func ideal(n int) float64 { return float64(n*slots*batch) / service.Seconds() }

func measure(ctx context.Context, o options) error {
	fmt.Printf("%d CPUs; a replica serves %d requests at a time, each of %d texts in %s: at most %.0f texts/s\n",
		runtime.NumCPU(), slots, batch, service, ideal(1))
	fmt.Printf("%d calls of %d texts at a time, %d dims, %d rounds of %s, medians\n\n", callers, o.rows, dims, o.rounds,
		o.length)
	fmt.Printf("%-26s %10s %10s %10s %8s   %s\n", "", "texts/s", "of ideal", "call p50", "failed",
		"requests of each replica")
	show := func(what string, f figure, ideal float64) {
		fmt.Printf("%-26s %10.0f %9.0f%% %10s %8d   %v\n", what, f.rate, 100*f.rate/ideal, f.p50.Round(time.Millisecond),
			f.failed, f.shares)
	}
	numbers, results := []int{1, 2, 4}, map[int][]figure{}
	for range o.rounds {
		for _, n := range numbers { // interleaved: what else the machine does falls on all alike
			f, err := run(ctx, o, n, 0)
			if err != nil {
				return err
			}
			results[n] = append(results[n], f)
		}
	}
	for _, n := range numbers {
		slices.SortFunc(results[n], func(a, b figure) int { return int(a.rate - b.rate) })
		show(fmt.Sprintf("replicas: %d", n), results[n][len(results[n])/2], ideal(n))
	}
	most := numbers[len(numbers)-1]
	f, err := run(ctx, o, most, o.length/3)
	if err == nil {
		show(fmt.Sprintf("%d, one dies after a third", most), f, ideal(most)/3+ideal(most-1)*2/3)
	}
	return err
}

// run measures once. With dies, the last replica drops every connection from then on.
func run(ctx context.Context, o options, n int, dies time.Duration) (figure, error) {
	var dead atomic.Bool
	var urls []string
	served := make([]atomic.Int64, n)
	for i := range n {
		stub := &remotetest.Server{Dialect: "openai", Dims: dims, Slots: slots, Service: service}
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if i == n-1 && dead.Load() {
				remotetest.Drop(w, r)
			}
			served[i].Add(1)
			stub.ServeHTTP(w, r)
		}))
		server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // dropped connections are meant
		server.Start()
		defer server.Close()
		urls = append(urls, server.URL+"/v1")
	}
	const prefix = "EMBEDSIDECAR_PLUGIN_REMOTE_"
	h, err := host.New(host.Options{Path: o.plugin, Env: map[string]string{
		prefix + "DIALECT": "openai", prefix + "URL": strings.Join(urls, " "), prefix + "MODEL": "stub",
		prefix + "DIMS": strconv.Itoa(dims), prefix + "BATCH_TEXTS": strconv.Itoa(batch),
	}})
	if err != nil {
		return figure{}, err
	}
	defer func() { _ = h.Close() }()
	// connections, and how many requests are good at a time
	if _, err := embedFor(ctx, h, o.rows, o.length/4); err != nil {
		return figure{}, err
	}
	for i := range served {
		served[i].Store(0)
	}
	if dies > 0 {
		defer time.AfterFunc(dies, func() { dead.Store(true) }).Stop()
	}
	f, err := embedFor(ctx, h, o.rows, o.length)
	for i := range served {
		f.shares = append(f.shares, served[i].Load())
	}
	return f, err
}

// embedFor keeps the plugin busy and counts the vectors.
func embedFor(ctx context.Context, h *host.Host, rows int, length time.Duration) (figure, error) {
	var (
		mu    sync.Mutex
		done  int
		f     figure
		times []time.Duration
		last  error
		wg    sync.WaitGroup
	)
	texts := make([]string, rows)
	for i := range texts {
		texts[i] = fmt.Sprintf("row %d of a table, with as many words as a title has", i)
	}
	began := time.Now()
	for range callers {
		wg.Go(func() {
			for time.Since(began) < length && ctx.Err() == nil {
				start := time.Now()
				results, err := h.Embed(ctx, embed.Document, texts)
				good := len(slices.DeleteFunc(results, func(r embed.Result) bool { return r.Err != nil }))
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
