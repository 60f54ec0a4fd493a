package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/health"
	"github.com/embedsidecar/embedsidecar/internal/node/embedders"
	"github.com/embedsidecar/embedsidecar/internal/ops"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/sidecar"
)

// watch is what a running sidecar shows of itself: probes and metrics. Without a listener it does nothing.
type watch struct {
	env     *environment
	plugins *embedders.Pool
	figures *figures // nil without a listener

	mu      sync.Mutex
	sidecar *sidecar.Sidecar // nil while it starts
	only    bool             // there is no sidecar: queries are answered and nothing else
}

func newWatch(env *environment, plugins *embedders.Pool) *watch {
	return &watch{env: env, plugins: plugins}
}

// listen answers probes from now on, if the user wants that. The function it returns ends that.
func (w *watch) listen(ctx context.Context) (stop func() error, err error) {
	if w.env.config.Ops.Listen == "" {
		return func() error { return nil }, nil
	}
	w.figures = newFigures(w.env, w.plugins)
	server, err := ops.Listen(ctx, ops.Options{
		Listen: w.env.config.Ops.Listen, Ready: w.ready, Metrics: w.figures.metrics, Version: thisBuild(), Log: w.env.log,
	})
	if err != nil {
		return nil, fail(exitUsage, err)
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it answers while work is finished, too
	done := make(chan error, 1)
	go func() { done <- server.Run(serving) }()
	return func() error {
		cancel()
		w.figures.close()
		return <-done
	}, nil
}

// embedder returns the embedder of a pipeline, measured if anybody listens.
func (w *watch) embedder(_ context.Context, p *pipeline.Pipeline) (embed.Embedder, error) {
	h, err := w.plugins.Get(p.Plugin, p.Model)
	if err != nil {
		return nil, err
	}
	if w.figures == nil {
		return h, nil
	}
	return h.Measure(w.figures.metrics.Embedder), nil
}

// fresh returns what notes how long rows have waited, or nil if nobody listens.
func (w *watch) fresh() func(p *pipeline.Pipeline, d time.Duration) {
	if w.figures == nil {
		return nil
	}
	return func(p *pipeline.Pipeline, d time.Duration) { w.figures.fresh(p.Name, d) }
}

// request notes a query that was answered.
func (w *watch) request(handler, method string, status int, took time.Duration) {
	if w.figures != nil {
		w.figures.metrics.Request(handler, method, status, took)
	}
}

// follow shows a sidecar that is about to run.
func (w *watch) follow(s *sidecar.Sidecar, pool, direct *pgxpool.Pool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sidecar = s
	if w.figures != nil {
		w.figures.follow(s, pool, direct)
	}
}

// ready answers probes from what is known.
func (w *watch) ready(context.Context) []ops.Check {
	w.mu.Lock()
	s, only := w.sidecar, w.only
	w.mu.Unlock()
	if only {
		return w.readyPlugins(nil)
	}
	stream := ops.Check{Name: "stream"}
	switch {
	case s == nil:
		stream.Err = errors.New("starting: waits for the database, or sets it up")
	case s.Stream() == nil:
		stream.Err = errors.New("starting")
	case !s.Stream().Connected.Load() && !s.Stream().Standby.Load():
		stream.Err = errors.New("no connection to the slot")
	}
	checks := []ops.Check{stream}
	if s != nil {
		checks = append(checks, readyPipelines(s.Health())...)
	}
	return w.readyPlugins(checks)
}

// readyPipelines are the pipelines that this sidecar should work. One that a person has paused is as it should be.
func readyPipelines(states map[string]health.State) []ops.Check {
	var checks []ops.Check
	for _, name := range slices.Sorted(maps.Keys(states)) {
		check, state := ops.Check{Name: "pipeline " + name}, states[name]
		if !state.Code.Works() && state.Code != health.Paused && state.Code != health.Disabled {
			check.Err = fmt.Errorf("%s: %s", state.Code.Word(), state)
		}
		checks = append(checks, check)
	}
	return checks
}

// readyPlugins adds the plugins to what must be so.
func (w *watch) readyPlugins(checks []ops.Check) []ops.Check {
	for _, h := range w.plugins.All() {
		check := ops.Check{Name: "plugin " + h.Plugin}
		switch stats := h.Stats(); {
		case stats.CircuitOpen:
			check.Err = fmt.Errorf("its circuit is %s: it fails again and again; last: %s", stats.Circuit, stats.Reason)
		case stats.Starts == 0:
			check.Err = errors.New("not started yet")
		}
		checks = append(checks, check)
	}
	return checks
}
