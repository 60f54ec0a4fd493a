package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/ops"
	"github.com/embedsidecar/embedsidecar/pipeline"
	"github.com/embedsidecar/embedsidecar/sidecar"
)

// watch is what a running sidecar shows of itself: probes and metrics.
type watch struct {
	env     *environment
	plugins *embedders

	mu      sync.Mutex
	sidecar *sidecar.Sidecar // nil while starting
	pool    *pgxpool.Pool
}

func newWatch(env *environment, plugins *embedders) *watch {
	return &watch{env: env, plugins: plugins}
}

// listen answers probes from now on, if the user wants that. The function it returns ends that.
func (w *watch) listen(ctx context.Context) (stop func() error, err error) {
	if w.env.config.Ops.Listen == "" {
		return func() error { return nil }, nil
	}
	server, err := ops.Listen(ctx, ops.Options{Listen: w.env.config.Ops.Listen, Ready: w.ready, Version: thisBuild(), Log: w.env.log})
	if err != nil {
		return nil, fail(exitUsage, err)
	}
	w.env.log.InfoContext(ctx, "listening", "address", server.Addr())
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it also answers while work is finished
	done := make(chan error, 1)
	go func() { done <- server.Run(serving) }()
	return func() error {
		cancel()
		return <-done
	}, nil
}

// embedder returns the embedder of a pipeline.
func (w *watch) embedder(p *pipeline.Pipeline) (embed.Embedder, error) {
	return w.plugins.get(p.Plugin, p.Model)
}

func (w *watch) fresh() func(p *pipeline.Pipeline, d time.Duration) { return nil }

// follow shows a sidecar that is about to run.
func (w *watch) follow(s *sidecar.Sidecar, pool *pgxpool.Pool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sidecar, w.pool = s, pool
}

// ready answers probes from what is known.
func (w *watch) ready(context.Context) []ops.Check {
	w.mu.Lock()
	s := w.sidecar
	w.mu.Unlock()
	if s == nil {
		return []ops.Check{{Name: "database", Err: errors.New("starting")}}
	}
	stream := ops.Check{Name: "stream", Err: errors.New("not connected")}
	if stats := s.Stream(); stats != nil && stats.Connected.Load() {
		stream.Err = nil
	}
	checks := []ops.Check{stream}
	for _, h := range w.plugins.all() {
		check := ops.Check{Name: "plugin " + h.plugin}
		switch stats := h.Stats(); {
		case stats.CircuitOpen:
			check.Err = errors.New("it fails again and again, and is left alone for a moment")
		case stats.Starts == 0:
			check.Err = errors.New("not started yet")
		}
		checks = append(checks, check)
	}
	return checks
}

var _ = fmt.Sprint
