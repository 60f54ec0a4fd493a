package observe

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/metrics"
	"github.com/embedsidecar/embedsidecar/internal/base/restart"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/engine/worker"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/setup/connection"
	"github.com/embedsidecar/embedsidecar/internal/setup/indexes"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/replication"
)

// Limits for figures from the database: their maximum age while they are scraped, and the time limits of the queries.
const (
	tablesAge     = 15 * time.Second
	indexesAge    = time.Minute // reads the catalog once for each pipeline
	tablesTimeout = 10 * time.Second
	countsTimeout = time.Minute // reads the ledger of each pipeline, which may be large
)

// collector exports the counters of the program's parts as metrics. It reads counters of this process at each scrape.
// It queries the database after a scrape that found the figures outdated, so without scrapes there are no queries.
type collector struct {
	Options

	metrics *metrics.Metrics
	source  *metrics.Source

	asking sync.WaitGroup
	ctx    context.Context //nolint:containedctx // ends queries started by scrapes
	cancel context.CancelFunc

	covering sync.Mutex // held while ledgers are counted
	counts   report.Counts

	services *services
	shows    sync.Mutex // held while a scrape updates the metrics, and while they are removed
	stops    []func()   // stop following a sidecar; used by follow and leave

	mu        sync.Mutex
	pipelines map[string]*tally
	asked     time.Time
	indexed   time.Time // when the indexes were read
}

// tally follows the workers of a pipeline. Each change of the pipeline makes a new worker.
type tally struct {
	metrics *metrics.Pipeline
	worker  *worker.Stats
	counted map[prometheus.Counter]int64 // last counts of worker
	stopped health.Code                  // its state, if shown under its own name while it shares a label
	labels  pipeline.Labels              // the labels shown
}

// services are the services whose counters are followed. Databases share them.
type services struct {
	mu   sync.Mutex
	list map[*embed.Stats]bool
}

// add reports whether a service is new.
func (s *services) add(stats *embed.Stats) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list == nil {
		s.list = map[*embed.Stats]bool{}
	}
	is := !s.list[stats]
	s.list[stats] = true
	return is
}

// newCollector makes a collector of a database. An empty name means the one of the connection string.
func newCollector(ctx context.Context, o Options, into *metrics.Metrics, name string) *collector {
	c := &collector{Options: o, metrics: into, pipelines: map[string]*tally{}, services: &services{}}
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, c.cancel)
	if dsn, err := config.ParseDSN(o.Config.Database.URL); name == "" && err == nil {
		name = dsn.Database
	}
	name = cmp.Or(name, "main")
	c.source = c.metrics.Source(name, o.Config.Slot.Name)
	return c
}

// close waits until the queries have ended.
func (c *collector) close() {
	c.cancel()
	c.asking.Wait()
}

// leave stops following the sidecar, which has ended; quiet: without an error.
func (c *collector) leave(quiet bool) {
	c.unfollow()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.pipelines {
		t.count()
		t.worker = nil
	}
	c.source.Connected.Set(metrics.Bool(quiet))
	c.source.Up.Set(metrics.Bool(quiet))
	c.source.Workers.Set("busy", 0)
	c.source.Workers.Set("idle", 0)
}

// unfollow stops following the previous sidecar.
func (c *collector) unfollow() {
	for _, stop := range c.stops {
		stop()
	}
	c.stops = nil
}

// forget removes the metrics of a removed database.
func (c *collector) forget() {
	c.leave(false)
	c.close()
	c.shows.Lock()
	defer c.shows.Unlock()
	c.source.Close()
}

func (c *collector) follow(s *sidecar.Sidecar, snapshot func() Snapshot, work *pgxpool.Pool) {
	c.unfollow()
	keep := func(stop func()) { c.stops = append(c.stops, stop) }
	for _, count := range []struct {
		counter prometheus.Counter
		field   func(*replication.Stats) *atomic.Int64
	}{
		{c.source.Changes, func(s *replication.Stats) *atomic.Int64 { return &s.Changes }},
		{c.source.Transactions, func(s *replication.Stats) *atomic.Int64 { return &s.Transactions }},
		{c.source.Replayed, func(s *replication.Stats) *atomic.Int64 { return &s.Replayed }},
		{c.source.Bytes, func(s *replication.Stats) *atomic.Int64 { return &s.Bytes }},
		{c.source.Reconnects, func(s *replication.Stats) *atomic.Int64 { return &s.Reconnects }},
		{c.source.Gaps, func(s *replication.Stats) *atomic.Int64 { return &s.Gaps }},
		{c.source.TableChanges, func(s *replication.Stats) *atomic.Int64 { return &s.CatalogueScans }},
		{c.source.Direct, func(s *replication.Stats) *atomic.Int64 { return &s.Direct }},
		{c.source.Enqueued, func(s *replication.Stats) *atomic.Int64 { return &s.Made }},
		{c.source.Deduplicated, func(s *replication.Stats) *atomic.Int64 { return &s.Joined }},
		{c.source.Skipped.At("own_write"), func(s *replication.Stats) *atomic.Int64 { return &s.OwnWrites }},
		{c.source.Skipped.At("unchanged"), func(s *replication.Stats) *atomic.Int64 { return &s.Dropped }},
		{c.source.Hints.At("urgent"), func(s *replication.Stats) *atomic.Int64 { return &s.Urgent }},
		{c.source.Hints.At("low"), func(s *replication.Stats) *atomic.Int64 { return &s.Low }},
		{c.source.Hints.At("skip"), func(s *replication.Stats) *atomic.Int64 { return &s.Skips }},
		{c.source.Hints.At("ignored"), func(s *replication.Stats) *atomic.Int64 { return &s.Forged }},
		{c.source.Skipped.At("key_too_long"), func(s *replication.Stats) *atomic.Int64 { return &s.TooLong }},
	} {
		keep(c.metrics.Follow(count.counter, func() int64 {
			if stats := s.Stream(); stats != nil {
				return count.field(stats).Load()
			}
			return 0
		}))
	}
	for outcome, field := range map[string]func(*sidecar.Asked) *atomic.Int64{
		"answered": func(a *sidecar.Asked) *atomic.Int64 { return &a.Answered },
		"failed":   func(a *sidecar.Asked) *atomic.Int64 { return &a.Failed },
		"refused":  func(a *sidecar.Asked) *atomic.Int64 { return &a.Refused },
		"expired":  func(a *sidecar.Asked) *atomic.Int64 { return &a.Expired },
		"forged":   func(a *sidecar.Asked) *atomic.Int64 { return &a.Forged },
	} {
		keep(c.metrics.Follow(c.source.Questions.At(outcome), func() int64 {
			if stats := s.Asked(); stats != nil {
				return field(stats).Load()
			}
			return 0
		}))
	}
	for _, part := range restart.Parts {
		keep(c.metrics.Follow(c.source.Panics.At(string(part)), func() int64 { return s.Panics(part) }))
	}
	pipelines := func() []sidecar.State { return snapshot().Pipelines }
	keep(c.metrics.BeforeGather(func() {
		c.shows.Lock()
		defer c.shows.Unlock()
		if c.ctx.Err() != nil { // a scrape that began before the end must not show them again
			return
		}
		now := snapshot()
		c.source.ConfigRefused.Set(metrics.Bool(now.Configured.State == control.Refused))
		c.source.ConfigWaits.Set(float64(len(now.Configured.NeedsRestart)))
		c.streamed(now.Stream)
		c.worked(now.Pipelines)
		c.ask(work, pipelines)
	}))
}

func (c *collector) streamed(stats *replication.Stats) {
	if stats == nil {
		return
	}
	c.source.Connected.Set(metrics.Bool(stats.Connected.Load()))
	if at := stats.LastMessageAt.Load(); at > 0 {
		c.source.LastMessage.Set(float64(at) / float64(time.Second))
	}
	if stats.Streaming.Load() {
		c.source.SlotLag.Set(math.Max(0, float64(stats.ServerLSN.Load())-float64(stats.DurableLSN.Load())))
	}
}

func (c *collector) pipeline(name string) *tally {
	t, ok := c.pipelines[name]
	if !ok {
		t = &tally{metrics: c.source.Pipeline(name)}
		c.pipelines[name] = t
	}
	return t
}

// fresh records how long a row has waited for its vector.
func (c *collector) fresh(pipeline string, d time.Duration) {
	c.mu.Lock()
	observer := c.pipeline(pipeline).metrics.Freshness
	c.mu.Unlock()
	observer.Observe(d.Seconds())
}

func (c *collector) worked(states []sidecar.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var busy, loops float64
	for _, state := range states {
		t := c.pipeline(state.Pipeline.Name)
		t.count()
		if state.Worker != t.worker && state.Worker != nil {
			t.worker, t.counted = state.Worker, map[prometheus.Counter]int64{}
			t.count()
		}
		if state.Worker != nil {
			busy += float64(state.Worker.Busy.Load())
			loops += float64(connection.Loops(c.Config))
		}
		if state.Service != nil && c.services.add(state.Service) {
			c.serve(state)
		}
	}
	c.source.Workers.Set("busy", busy)
	c.source.Workers.Set("idle", math.Max(0, loops-busy))
	if loops > 0 {
		c.source.WorkerBusyRatio.Set(math.Min(1, busy/loops))
	}
}

// count adds the worker's progress since the last call.
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
		{m.Finished.At("skipped"), &w.Skipped},
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

// serve exports the counters of one model's service, which pipelines share.
func (c *collector) serve(state sidecar.State) {
	h, err := c.Plugins.Get(state.Pipeline.Plugin, state.Pipeline.Model)
	if err != nil {
		return // impossible while a worker uses it
	}
	m := c.metrics.Embedder(h.Model(), h.Plugin)
	c.metrics.Follow(m.CacheHits, state.Service.Saved.Load)
	c.metrics.Follow(m.CacheMisses, state.Service.Missed.Load)
}

// ask queries the database in the background if the figures are outdated.
func (c *collector) ask(pool *pgxpool.Pool, states func() []sidecar.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.asked) < tablesAge || c.ctx.Err() != nil {
		return
	}
	c.asked = time.Now()
	old := time.Since(c.indexed) >= indexesAge
	c.asking.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, tablesTimeout)
		defer cancel()
		// A scrape must not read a user's table: beyond a few pages the server's estimate is used.
		const few = 1000
		state, err := report.Options{CountUpTo: few, Uncovered: true}.Read(ctx, pool)
		if c.ctx.Err() != nil {
			return
		}
		c.source.Up.Set(metrics.Bool(err == nil))
		if err != nil {
			c.Log.WarnContext(ctx, "could not read metrics from the database", "error", err)
			return
		}
		works := states() // not under the lock, because it takes the lock itself
		c.mu.Lock()
		c.told(state, works)
		c.mu.Unlock()
		if old {
			c.lookAtIndexes(ctx, pool, states())
		}
		c.cover(pool, state.Pipelines)
	})
}

// cover exports the coverage of each pipeline. It takes long for a large ledger, so nothing waits for it. Only one runs
// at a time.
func (c *collector) cover(pool *pgxpool.Pool, pipelines []report.Pipeline) {
	if !c.covering.TryLock() {
		return
	}
	defer c.covering.Unlock()
	least := map[string]float64{} // by label; below 0: unknown for one of its pipelines
	for i := range pipelines {
		p := &pipelines[i]
		if p.Slot != c.Config.Slot.Name {
			continue
		}
		ctx, cancel := context.WithTimeout(c.ctx, countsTimeout)
		err := c.counts.Cover(ctx, pool, p)
		cancel()
		if c.ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		if t, there := c.pipelines[p.Name]; there {
			ratio := p.CoverageOr(-1)
			if err != nil {
				ratio = -1
			}
			if before, several := least[t.metrics.Label]; several {
				ratio = min(ratio, before)
			}
			if least[t.metrics.Label] = ratio; ratio < 0 {
				t.metrics.Coverage.Unset() // the previous value is outdated
			} else {
				t.metrics.Coverage.Set(ratio)
			}
		}
		c.mu.Unlock()
		if err != nil {
			c.Log.WarnContext(c.ctx, "could not count coverage", "pipeline", p.Name, "error", err)
		}
	}
}

// lookAtIndexes exports the state of the worst index of each pipeline, if it can be read now.
func (c *collector) lookAtIndexes(ctx context.Context, pool *pgxpool.Pool, states []sidecar.State) {
	worst := map[string]indexes.Health{}
	for i := range states {
		p := &states[i].Pipeline
		if p.Status != pipeline.Active {
			continue
		}
		if found, err := indexes.Of(ctx, pool, p); err == nil && len(found) > 0 {
			worst[p.Name] = worstOf(found).State
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(states) > 0 { // else the pipelines are not loaded yet
		c.indexed = time.Now()
	}
	shared := indexes.Health("") // the worst of the pipelines that share a label
	for name, t := range c.pipelines {
		switch state, known := worst[name]; {
		case known && t.metrics.Label != name:
			if shared == "" || state.Worse(shared) {
				shared = state
			}
			t.metrics.Index.Only(string(shared))
		case known:
			t.metrics.Index.Only(string(state))
		case t.metrics.Label == name || shared == "":
			t.metrics.Index.Unset()
		}
	}
}

// told exports the figures of the database. It keeps a pipeline that has a worker, even if the figures are from before
// it was made, because its counters would restart at 0.
func (c *collector) told(state report.Status, worked []sidecar.State) {
	for _, s := range state.Slots {
		if s.Name != c.Config.Slot.Name {
			continue
		}
		c.source.CheckpointSaved.Set(float64(time.Now().Unix()) - s.SavedSecondsAgo)
		c.source.SlotRetained.Set(float64(s.RetainedBytes))
		c.source.SlotSafe.Set(math.Inf(1))
		if s.SafeWALBytes != nil {
			c.source.SlotSafe.Set(float64(*s.SafeWALBytes))
		}
		c.source.SlotStatus.Only(s.WALStatus)
		c.source.SlotLag.Set(float64(s.LagBytes))
	}
	there := map[string]bool{}
	for i := range worked {
		there[worked[i].Pipeline.Name] = true
	}
	shown := map[string]*figures{}
	for i := range state.Pipelines {
		p := &state.Pipelines[i]
		if p.Slot != c.Config.Slot.Name {
			continue
		}
		there[p.Name] = true
		t := c.pipeline(p.Name)
		f := shown[t.metrics.Label]
		if f == nil {
			f = &figures{metrics: t.metrics}
			shown[t.metrics.Label] = f
		}
		f.add(p)
		if t.metrics.Label == p.Name {
			f.state = p.State
			c.source.Labelled(p.Name, t.labels, p.Labels)
			t.labels = p.Labels
			continue
		}
		stopped := health.Code("")
		if p.NeedsAct {
			stopped = p.State
		} else {
			f.state = worse(f.state, p.State)
		}
		c.source.Stopped(p.Name, string(t.stopped), string(stopped))
		t.stopped = stopped
	}
	for _, f := range shown {
		f.show()
	}
	for name := range c.pipelines {
		if !there[name] {
			c.source.Forget(name)
			delete(c.pipelines, name)
		}
	}
}

// figures are the values of the gauges of one pipeline, or the sums and the worst values of those that share a label.
type figures struct {
	metrics *metrics.Pipeline
	tasks   map[string]int64
	oldest  float64
	paused  bool
	budget  []float64 // spent share of each
	scans   bool
	awaited int64 // rows that scans expect
	seen    int64
	state   health.Code
}

func (f *figures) add(p *report.Pipeline) {
	if f.tasks == nil {
		f.tasks = map[string]int64{}
	}
	for state, n := range map[string]int64{
		"todo": p.Pending, "in_progress": p.Running, "retrying": p.Retrying, "failed": p.Failed, "cancelled": p.Cancelled,
	} {
		f.tasks[state] += n
	}
	if p.OldestSeconds != nil {
		f.oldest = max(f.oldest, *p.OldestSeconds)
	}
	f.paused = f.paused || !p.Enabled || p.Closed || p.State == health.BudgetSpent
	if share, known := p.BudgetShare(); known {
		f.budget = append(f.budget, share)
	}
	f.scans = f.scans || p.ScanPhase != "done"
	f.awaited += p.ScanExpected
	f.seen += p.ScanSeen
}

func (f *figures) show() {
	m := f.metrics
	for state, n := range f.tasks {
		m.Tasks.Set(state, float64(n))
	}
	m.Oldest.Set(f.oldest)
	m.Paused.Set(metrics.Bool(f.paused))
	if len(f.budget) > 0 {
		m.Budget.Set(slices.Max(f.budget))
	} else {
		m.Budget.Unset()
	}
	m.ScanRunning.Set(metrics.Bool(f.scans))
	m.ScanExpected.Set(float64(f.awaited))
	m.ScanSeen.Set(float64(f.seen))
	if f.state == "" { // every pipeline with this label is shown under its own name
		m.State.Unset()
		return
	}
	m.State.Only(string(f.state))
}

func worse(a, b health.Code) health.Code {
	if a == "" || slices.Index(health.Codes(), string(b)) < slices.Index(health.Codes(), string(a)) {
		return b
	}
	return a
}
