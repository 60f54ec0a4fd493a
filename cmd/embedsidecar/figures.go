package main

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/indexes"
	"github.com/embedsidecar/embedsidecar/internal/metrics"
	"github.com/embedsidecar/embedsidecar/internal/node/connection"
	"github.com/embedsidecar/embedsidecar/internal/node/embedders"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/report"
	"github.com/embedsidecar/embedsidecar/internal/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/worker"
	"github.com/embedsidecar/embedsidecar/replication"
)

// How old what the database said may get while somebody scrapes, and how long it may take to answer.
const (
	figuresAge     = 15 * time.Second
	indexesAge     = time.Minute // one look at the catalogue for each pipeline
	figuresTimeout = 10 * time.Second
	countsTimeout  = time.Minute // of the ledger of each pipeline, which may be large
)

// figures turns what the parts count into metrics. Counters of this process are read at each scrape. What only the
// database knows is asked for after a scrape that found it old: who does not scrape pays nothing.
type figures struct {
	env     *environment
	plugins *embedders.Pool
	metrics *metrics.Metrics
	source  *metrics.Source

	asking sync.WaitGroup
	ctx    context.Context //nolint:containedctx // ends what scrapes have started
	cancel context.CancelFunc

	covering sync.Mutex // held while ledgers are counted
	counts   report.Counts

	mu        sync.Mutex
	pipelines map[string]*tally
	services  map[*embed.Stats]bool // those that are followed
	asked     time.Time
	indexed   time.Time // when the indexes were looked at
}

// tally follows the workers of a pipeline, of which there is a new one after each change of the pipeline.
type tally struct {
	metrics *metrics.Pipeline
	worker  *worker.Stats
	counted map[prometheus.Counter]int64 // of worker
}

func newFigures(env *environment, plugins *embedders.Pool) *figures {
	b := thisBuild()
	f := &figures{
		env: env, plugins: plugins, metrics: metrics.New(metrics.Build{Version: b.Version, Revision: b.Revision}),
		pipelines: map[string]*tally{}, services: map[*embed.Stats]bool{},
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	name := "main"
	if c, err := config.ParseDSN(env.config.Database.URL); err == nil && c.Database != "" {
		name = c.Database
	}
	f.source = f.metrics.Source(name, env.config.Slot.Name)
	return f
}

// close waits until nothing asks the database any more.
func (f *figures) close() {
	f.cancel()
	f.asking.Wait()
}

func (f *figures) follow(s *sidecar.Sidecar, pool, direct *pgxpool.Pool) {
	for _, c := range []struct {
		counter prometheus.Counter
		field   func(*replication.Stats) *atomic.Int64
	}{
		{f.source.Changes, func(s *replication.Stats) *atomic.Int64 { return &s.Changes }},
		{f.source.Transactions, func(s *replication.Stats) *atomic.Int64 { return &s.Transactions }},
		{f.source.Replayed, func(s *replication.Stats) *atomic.Int64 { return &s.Replayed }},
		{f.source.Bytes, func(s *replication.Stats) *atomic.Int64 { return &s.Bytes }},
		{f.source.Reconnects, func(s *replication.Stats) *atomic.Int64 { return &s.Reconnects }},
		{f.source.Gaps, func(s *replication.Stats) *atomic.Int64 { return &s.Gaps }},
		{f.source.TableChanges, func(s *replication.Stats) *atomic.Int64 { return &s.CatalogueScans }},
		{f.source.Enqueued, func(s *replication.Stats) *atomic.Int64 { return &s.Made }},
		{f.source.Deduplicated, func(s *replication.Stats) *atomic.Int64 { return &s.Joined }},
		{f.source.Skipped.At("own_write"), func(s *replication.Stats) *atomic.Int64 { return &s.OwnWrites }},
		{f.source.Skipped.At("unchanged"), func(s *replication.Stats) *atomic.Int64 { return &s.Dropped }},
		{f.source.Skipped.At("key_too_long"), func(s *replication.Stats) *atomic.Int64 { return &s.TooLong }},
	} {
		f.metrics.Follow(c.counter, func() int64 {
			if stats := s.Stream(); stats != nil {
				return c.field(stats).Load()
			}
			return 0
		})
	}
	f.metrics.BeforeGather(func() {
		f.streamed(s.Stream())
		f.worked(s.States())
		f.plugged()
		f.pooled("work", pool)
		f.pooled("stream", direct)
		f.ask(pool, s.States)
	})
}

func (f *figures) streamed(stats *replication.Stats) {
	if stats == nil {
		return
	}
	f.source.Connected.Set(metrics.Bool(stats.Connected.Load()))
	if at := stats.LastMessageAt.Load(); at > 0 {
		f.source.LastMessage.Set(float64(at) / float64(time.Second))
	}
	if stats.Streaming.Load() {
		f.source.SlotLag.Set(math.Max(0, float64(stats.ServerLSN.Load())-float64(stats.DurableLSN.Load())))
	}
}

// pipeline returns the metrics of a pipeline.
func (f *figures) pipeline(name string) *tally {
	t, ok := f.pipelines[name]
	if !ok {
		t = &tally{metrics: f.source.Pipeline(name)}
		f.pipelines[name] = t
	}
	return t
}

// fresh notes how long a row has waited for its vector.
func (f *figures) fresh(pipeline string, d time.Duration) {
	f.mu.Lock()
	observer := f.pipeline(pipeline).metrics.Freshness
	f.mu.Unlock()
	observer.Observe(d.Seconds())
}

func (f *figures) worked(states []sidecar.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var busy, loops float64
	for _, state := range states {
		t := f.pipeline(state.Pipeline.Name)
		t.count()
		if state.Worker != t.worker && state.Worker != nil {
			t.worker, t.counted = state.Worker, map[prometheus.Counter]int64{}
			t.count()
		}
		if state.Worker != nil {
			busy += float64(state.Worker.Busy.Load())
			loops += float64(connection.Loops(f.env.config))
		}
		if state.Service != nil && !f.services[state.Service] {
			f.services[state.Service] = true
			f.serve(state)
		}
	}
	f.source.Workers.Set("busy", busy)
	f.source.Workers.Set("idle", math.Max(0, loops-busy))
	if loops > 0 {
		f.source.WorkerBusyRatio.Set(math.Min(1, busy/loops))
	}
}

// count adds what the worker did since the last look.
func (t *tally) count() {
	if t.worker == nil {
		return
	}
	w, m := t.worker, t.metrics
	for _, c := range []struct {
		counter prometheus.Counter
		total   *atomic.Int64
	}{
		{m.Finished.At("embedded"), &w.Embedded},
		{m.Finished.At("reused"), &w.Reused},
		{m.Finished.At("unchanged"), &w.Unchanged},
		{m.Finished.At("emptied"), &w.Emptied},
		{m.Finished.At("removed"), &w.Removed},
		{m.Finished.At("failed"), &w.Failed},
		{m.Retries, &w.Retried},
		{m.LeasesLost, &w.Lost},
		{m.Crashes, &w.Crashed},
		{m.Writes.At("written"), &w.Written},
		{m.Writes.At("locked"), &w.Locked},
		{m.Writes.At("stale"), &w.Fenced},
		{m.Sanitised, &w.Sanitised},
		{m.Tokens, &w.Tokens},
	} {
		if now := c.total.Load(); now > t.counted[c.counter] {
			c.counter.Add(float64(now - t.counted[c.counter]))
			t.counted[c.counter] = now
		}
	}
}

// serve follows what is remembered for one model, whichever pipeline uses it.
func (f *figures) serve(state sidecar.State) {
	h, err := f.plugins.Get(state.Pipeline.Plugin, state.Pipeline.Model)
	if err != nil {
		return // it is being worked, so this cannot be
	}
	m := f.metrics.Embedder(h.Model(), h.Plugin)
	f.metrics.Follow(m.CacheHits, state.Service.Saved.Load)
	f.metrics.Follow(m.CacheMisses, state.Service.Missed.Load)
}

func (f *figures) plugged() {
	for _, h := range f.plugins.All() {
		stats, m := h.Stats(), f.metrics.Plugin(h.Plugin)
		m.Up(stats.Up, stats.Version)
		m.CircuitOpen.Set(metrics.Bool(stats.CircuitOpen))
		h.Count(stats, m)
	}
}

func (f *figures) pooled(name string, pool *pgxpool.Pool) {
	stat, m := pool.Stat(), f.metrics.Pool(name)
	m.Set("idle", float64(stat.IdleConns()))
	m.Set("acquired", float64(stat.AcquiredConns()))
	m.Set("constructing", float64(stat.ConstructingConns()))
	m.Set("max", float64(stat.MaxConns()))
}

// ask has the database asked in the background if what it said is old.
func (f *figures) ask(pool *pgxpool.Pool, states func() []sidecar.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.asked) < figuresAge || f.ctx.Err() != nil {
		return
	}
	f.asked = time.Now()
	indexes := time.Since(f.indexed) >= indexesAge
	f.asking.Go(func() {
		ctx, cancel := context.WithTimeout(f.ctx, figuresTimeout)
		defer cancel()
		// A scrape is no reason to read a table of the user's: beyond a few pages the server's estimate will do.
		const few = 1000
		state, err := report.Options{CountUpTo: few, Uncovered: true}.Read(ctx, pool)
		if f.ctx.Err() != nil {
			return
		}
		f.source.Up.Set(metrics.Bool(err == nil))
		if err != nil {
			f.env.log.WarnContext(ctx, "no figures from the database", "error", err)
			return
		}
		f.mu.Lock()
		f.told(state, states())
		f.mu.Unlock()
		if indexes {
			f.lookAtIndexes(ctx, pool, states())
		}
		f.cover(pool, state.Pipelines)
	})
}

// cover shows which share of each pipeline's rows has its vector. It takes as long as the ledger is large, and
// nothing else waits for it; while one count runs there is no other.
func (f *figures) cover(pool *pgxpool.Pool, pipelines []report.Pipeline) {
	if !f.covering.TryLock() {
		return
	}
	defer f.covering.Unlock()
	for i := range pipelines {
		p := &pipelines[i]
		if p.Slot != f.env.config.Slot.Name {
			continue
		}
		ctx, cancel := context.WithTimeout(f.ctx, countsTimeout)
		err := f.counts.Cover(ctx, pool, p)
		cancel()
		if f.ctx.Err() != nil {
			return
		}
		f.mu.Lock()
		if t, there := f.pipelines[p.Name]; there && err == nil {
			t.metrics.Coverage.Set(p.Coverage)
		} else if there {
			t.metrics.Coverage.Unset() // what it was says nothing of now
		}
		f.mu.Unlock()
		if err != nil {
			f.env.log.WarnContext(f.ctx, "coverage not counted", "pipeline", p.Name, "error", err)
		}
	}
}

// lookAtIndexes shows the worst index of each pipeline; none of one that cannot be looked at now.
func (f *figures) lookAtIndexes(ctx context.Context, pool *pgxpool.Pool, states []sidecar.State) {
	worst := map[string]indexes.Health{}
	for i := range states {
		p := &states[i].Pipeline
		if p.Status != pipeline.Active {
			continue
		}
		if found, err := indexes.Of(ctx, pool, p); err == nil && len(found) > 0 {
			worst[p.Name] = worstIndex(found).State
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(states) > 0 { // else it is about to load them
		f.indexed = time.Now()
	}
	for name, t := range f.pipelines {
		if state, known := worst[name]; known {
			t.metrics.Index.Only(string(state))
		} else {
			t.metrics.Index.Unset()
		}
	}
}

// told shows what the database said. A pipeline that is being worked stays, though the answer may be from before it
// was made: its counters would begin at 0 again.
func (f *figures) told(state report.Status, worked []sidecar.State) {
	for _, s := range state.Slots {
		if s.Name != f.env.config.Slot.Name {
			continue
		}
		f.source.CheckpointSaved.Set(float64(time.Now().Unix()) - s.SavedSecondsAgo)
		f.source.SlotRetained.Set(float64(s.RetainedBytes))
		f.source.SlotSafe.Set(math.Inf(1))
		if s.SafeWALBytes != nil {
			f.source.SlotSafe.Set(float64(*s.SafeWALBytes))
		}
		f.source.SlotStatus.Only(s.WALStatus)
		f.source.SlotLag.Set(float64(s.LagBytes))
	}
	there := map[string]bool{}
	for i := range worked {
		there[worked[i].Pipeline.Name] = true
	}
	for _, p := range state.Pipelines {
		if p.Slot != f.env.config.Slot.Name {
			continue
		}
		there[p.Name] = true
		m := f.pipeline(p.Name).metrics
		m.Tasks.Set("todo", float64(p.Pending))
		m.Tasks.Set("in_progress", float64(p.Running))
		m.Tasks.Set("retrying", float64(p.Retrying))
		m.Tasks.Set("failed", float64(p.Failed))
		m.Oldest.Set(0)
		if p.OldestSeconds != nil {
			m.Oldest.Set(*p.OldestSeconds)
		}
		m.Paused.Set(metrics.Bool(!p.Enabled))
		m.State.Only(string(p.State))
		m.ScanRunning.Set(metrics.Bool(p.ScanPhase != "done"))
		m.ScanExpected.Set(float64(p.ScanExpected))
		m.ScanSeen.Set(float64(p.ScanSeen))
	}
	for name := range f.pipelines {
		if !there[name] {
			f.source.Forget(name)
			delete(f.pipelines, name)
		}
	}
}
