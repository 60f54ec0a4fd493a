// Package observe shows how the running program stands: probes, metrics and the control socket each show a part of one
// Snapshot. What only the tables know is read here, too.
package observe

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/status/ops"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// Options say what is observed.
type Options struct {
	Config  *config.Config
	Log     *slog.Logger
	Build   Build
	Plugins *embedders.Pool
}

// Observer is what a running program shows of itself. It is safe for concurrent use.
type Observer struct {
	o Options

	mu        sync.Mutex
	collector *collector       // nil without a listener; Listen sets it before anything else begins
	sidecar   *sidecar.Sidecar // nil while it starts
	pool      *pgxpool.Pool    // nil while there is none
	standing  []report.Pipeline
	phase     Phase
	waits     error // why it does not come further with its start; nil: not known
}

// New makes an Observer of a program that starts, or, with Queries, of one that answers queries and does nothing else.
func New(o Options, phase Phase) *Observer { return &Observer{o: o, phase: phase} }

// Listen answers probes from now on, if the user wants that. The function it returns ends that.
func (o *Observer) Listen(ctx context.Context) (stop func() error, err error) {
	if o.o.Config.Ops.Listen == "" {
		return func() error { return nil }, nil
	}
	collector := newCollector(ctx, o.o)
	if o.phase == Queries {
		collector.metrics.BeforeGather(collector.plugged)
	}
	o.mu.Lock()
	o.collector = collector
	o.mu.Unlock()
	server, err := ops.Listen(ctx, ops.Options{
		Listen: o.o.Config.Ops.Listen, Ready: o.ready, Metrics: collector.metrics, Version: o.o.Build, Log: o.o.Log,
	})
	if err != nil {
		collector.close()
		return nil, problem.New(problem.Usage, err)
	}
	finish := server.Start(ctx) // it answers while work is finished, too
	return func() error {
		collector.close()
		return finish()
	}, nil
}

// Embedder returns the embedder of a pipeline, measured if anybody listens.
func (o *Observer) Embedder(_ context.Context, p *pipeline.Pipeline) (embed.Embedder, error) {
	h, err := o.o.Plugins.Get(p.Plugin, p.Model)
	if err != nil {
		return nil, err
	}
	if o.collector == nil {
		return h, nil
	}
	return h.Measure(o.collector.metrics.Embedder), nil
}

// Fresh returns what notes how long rows have waited, or nil if nobody listens.
func (o *Observer) Fresh() func(p *pipeline.Pipeline, d time.Duration) {
	if o.collector == nil {
		return nil
	}
	return func(p *pipeline.Pipeline, d time.Duration) { o.collector.fresh(p.Name, d) }
}

// Request notes a query that was answered.
func (o *Observer) Request(handler, method string, status int, took time.Duration) {
	if o.collector != nil {
		o.collector.metrics.Request(handler, method, status, took)
	}
}

// Wait shows what a start waits for.
func (o *Observer) Wait(why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waits = why
}

// Follow shows a sidecar that is about to run, and its pools of connections.
func (o *Observer) Follow(s *sidecar.Sidecar, work, stream *pgxpool.Pool) {
	o.mu.Lock()
	o.sidecar, o.pool, o.phase = s, work, Working
	o.mu.Unlock()
	if o.collector != nil { // not under the lock: a scrape asks for a Snapshot
		o.collector.follow(s, o.Snapshot, work, stream)
	}
}

// Snapshot tells how the program stands, from what is known: it asks nobody.
func (o *Observer) Snapshot() Snapshot {
	o.mu.Lock()
	running, phase, waits := o.sidecar, o.phase, o.waits
	o.mu.Unlock()
	s := Snapshot{
		Instance: o.o.Config.Instance, Slot: o.o.Config.Slot.Name, Version: o.o.Build.Version, Pid: os.Getpid(),
		Phase: phase, Waits: waits, Plugins: o.o.Plugins.States(),
	}
	if running != nil {
		s.Stream, s.Pipelines = running.Stream(), running.States()
	}
	return s
}

// ready answers probes.
func (o *Observer) ready(ctx context.Context) []ops.Check {
	s := o.Snapshot()
	s.Standing = o.stand(ctx)
	return s.Ready()
}

// stand asks the tables where the pipelines of the slot stand, for a moment: a probe does not wait. It returns what
// they said last where they give no answer.
func (o *Observer) stand(ctx context.Context) []report.Pipeline {
	const moment = 500 * time.Millisecond
	o.mu.Lock()
	pool, last := o.pool, o.standing
	o.mu.Unlock()
	if pool == nil {
		return last
	}
	ctx, cancel := context.WithTimeout(ctx, moment)
	defer cancel()
	list, err := report.Pipelines(ctx, pool)
	if err != nil {
		return last
	}
	list = slices.DeleteFunc(list, func(p report.Pipeline) bool { return p.Slot != o.o.Config.Slot.Name })
	o.mu.Lock()
	defer o.mu.Unlock()
	o.standing = list
	return list
}
