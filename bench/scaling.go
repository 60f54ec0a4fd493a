package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/host"
	"github.com/embedsidecar/embedsidecar/plugins/remote/remotetest"
)

// A replica serves a few concurrent requests, each of batch texts in a fixed time.
const (
	service   = 50 * time.Millisecond
	slots     = 2
	batch     = 32
	stubDims  = 384
	callers   = 3 // concurrent calls, as of the sidecar's workers
	callTexts = 256
	callsFor  = 4 * time.Second // each measurement
)

// measureScaling measures how the remote embedder distributes work over replicas of one model: the real plugin in its
// own process, called as by the sidecar, against stub servers in this process. A stub computes nothing: each request
// takes a fixed time in one of a few slots, as on a GPU of its own. So only the overhead is measured, not a model.
func measureScaling(ctx context.Context, p *place) {
	f := newFigures("Texts/s of the plugin remote; a replica serves %d requests of %d texts in %s; %d calls of %d texts at a "+
		"time, for %s", slots, batch, service, callers, callTexts, callsFor)
	f.Columns = []string{"of ideal", "call p50 ms", "failed calls", "fewest requests", "most of a replica"}
	defer p.show(f)
	const most = 4
	for round := range p.rounds {
		for _, n := range []int{1, 2, most} { // interleaved, so that other load affects all alike
			p.replicas(ctx, n, false).add(f, fmt.Sprintf("replicas: %d", n), ideal(n))
		}
		left := ideal(most)/3 + ideal(most-1)*2/3
		p.replicas(ctx, most, true).add(f, fmt.Sprintf("%d, one dies after a third", most), left)
		p.say("scaling: round %d of %d", round+1, p.rounds)
	}
}

// ideal is the maximum texts/s of n replicas.
func ideal(n int) float64 { return float64(n*slots*batch) / service.Seconds() }

// calls is the result of one measurement.
type calls struct {
	mu     sync.Mutex
	texts  int
	failed int
	last   error     // why one failed
	times  []float64 // ms
	took   time.Duration
	shares []int64 // requests of each replica
}

func (c *calls) add(f *figures, name string, ideal float64) {
	rate := float64(c.texts) / c.took.Seconds()
	f.add(name, "texts/s", rate)
	for i, v := range []float64{
		rate / ideal, quantile(c.times, 0.5), float64(c.failed), float64(slices.Min(c.shares)), float64(slices.Max(c.shares)),
	} {
		f.note(name, f.Columns[i], v)
	}
}

// replicas measures n replicas once. With dies, one drops every connection after a third of the time.
func (p *place) replicas(ctx context.Context, n int, dies bool) *calls {
	var dead atomic.Bool
	var urls []string
	served := make([]atomic.Int64, n)
	for i := range n {
		stub := &remotetest.Server{Dialect: "openai", Dims: stubDims, Slots: slots, Service: service}
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if i == n-1 && dead.Load() {
				remotetest.Drop(w, r)
			}
			served[i].Add(1)
			stub.ServeHTTP(w, r)
		}))
		server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // dropped connections are intended
		server.Start()
		defer server.Close()
		urls = append(urls, server.URL+"/v1")
	}
	plugin := p.startPlugin("remote", "REMOTE_DIALECT", "openai", "REMOTE_URL", strings.Join(urls, " "),
		"REMOTE_MODEL", "stub", "REMOTE_DIMS", strconv.Itoa(stubDims), "REMOTE_BATCH_TEXTS", strconv.Itoa(batch))
	defer func() { _ = plugin.Close() }()
	embedFor(ctx, plugin, callsFor/4) // warm-up: connections, and the concurrency limits
	for i := range served {
		served[i].Store(0)
	}
	if dies {
		defer time.AfterFunc(callsFor/3, func() { dead.Store(true) }).Stop()
	}
	c := embedFor(ctx, plugin, callsFor)
	for i := range served {
		c.shares = append(c.shares, served[i].Load())
	}
	return c
}

// embedFor keeps the plugin busy and counts the vectors.
func embedFor(ctx context.Context, h *host.Host, length time.Duration) *calls {
	texts := make([]string, callTexts)
	for i := range texts {
		texts[i] = fmt.Sprintf("row %d of a table, with as many words as a title has", i)
	}
	c := &calls{}
	began := time.Now()
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for time.Since(began) < length && ctx.Err() == nil {
				c.once(ctx, h, texts)
			}
		})
	}
	wg.Wait()
	c.took = time.Since(began)
	if c.texts == 0 {
		check(fmt.Errorf("nothing was embedded: %w", errors.Join(c.last, ctx.Err())))
	}
	return c
}

func (c *calls) once(ctx context.Context, h *host.Host, texts []string) {
	began := time.Now()
	results, err := h.Embed(ctx, embed.Document, texts)
	took := time.Since(began)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times = append(c.times, millis(took))
	for _, r := range results {
		if r.Err == nil {
			c.texts++
		}
	}
	if slices.ContainsFunc(results, func(r embed.Result) bool { return r.Err != nil }) || err != nil {
		c.failed++
		c.last = err
	}
}
