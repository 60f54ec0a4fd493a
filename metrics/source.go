package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// The values of labels; a counter takes others as "other".
var (
	Operations      = []string{"insert", "update", "delete", "truncate"}
	ReconnectReason = []string{"connection", "server", "slot"}
	SkipReasons     = []string{"own_write", "unchanged_text", "filter", "unconfigured"}
	WALStatuses     = []string{"reserved", "extended", "unreserved", "lost"}
	TaskStates      = []string{"todo", "in_progress", "retrying", "failed", "cancelled"}
	Origins         = []string{"stream", "backfill", "reconcile", "user"}
	FinishOutcomes  = []string{"embedded", "reused", "unchanged", "emptied", "removed", "failed"}
	ErrorClasses    = []string{"transient", "configuration", "data", "resource", "crash"}
	WriteOutcomes   = []string{"written", "removed", "locked", "stale", "failed"}
	EmbedOutcomes   = []string{"ok", "empty", "failed"}
	WorkerStates    = []string{"idle", "busy"}
	PoolStates      = []string{"idle", "acquired", "constructing", "max"}
)

// Counters are counters that differ in one label.
type Counters struct {
	planned map[string]prometheus.Counter
	with    func(value string) prometheus.Counter
}

// At returns the counter of a label's value. Values nobody planned for are counted together, as "other", so that a new
// class of errors cannot fill the memory of whoever scrapes.
func (c Counters) At(value string) prometheus.Counter {
	if counter, ok := c.planned[value]; ok {
		return counter
	}
	return c.with("other")
}

func counters(values []string, with func(value string) prometheus.Counter) Counters {
	c := Counters{planned: map[string]prometheus.Counter{}, with: with}
	for _, value := range values {
		c.planned[value] = with(value) // there from now on, at 0
	}
	return c
}

// Gauge is a measured value. It does not show before it was set for the first time: a 0 that nobody measured would be a lie.
type Gauge struct {
	vec    *prometheus.GaugeVec
	labels []string
}

// Set makes it known.
func (g Gauge) Set(to float64) { g.vec.WithLabelValues(g.labels...).Set(to) }

// Unset makes it unknown again.
func (g Gauge) Unset() { g.vec.DeleteLabelValues(g.labels...) }

// Gauges are gauges that differ in their last label. They show, at 0, from the first time one of them is set.
type Gauges struct {
	gauge  Gauge
	values []string
}

// Set sets the gauge of a label's value; a value nobody planned for is left out.
func (g Gauges) Set(value string, to float64) {
	for _, planned := range g.values {
		gauge := g.gauge.vec.WithLabelValues(append(slices.Clone(g.gauge.labels), planned)...)
		if planned == value {
			gauge.Set(to)
		}
	}
}

// Only sets one gauge to 1 and all others to 0.
func (g Gauges) Only(value string) {
	for _, planned := range g.values {
		g.gauge.vec.WithLabelValues(append(slices.Clone(g.gauge.labels), planned)...).Set(Bool(planned == value))
	}
}

// Source holds the metrics of one database.
type Source struct {
	Up              Gauge // 1 or 0
	Connected       Gauge // 1 or 0
	LagSeconds      Gauge
	CheckpointLag   Gauge  // bytes
	CheckpointSaved Gauge  // Unix seconds
	LastMessage     Gauge  // Unix seconds
	SlotLag         Gauge  // bytes
	SlotRetained    Gauge  // bytes
	SlotSafe        Gauge  // bytes, +Inf without a limit
	SlotStatus      Gauges // by WALStatuses
	Transactions    prometheus.Counter
	Bytes           prometheus.Counter
	Gaps            prometheus.Counter
	Reconnects      Counters // by ReconnectReason
	Workers         Gauges   // by WorkerStates
	WorkerBusyRatio Gauge

	metrics *Metrics
	name    string
}

// Source returns the metrics of a database and its slot.
func (m *Metrics) Source(name, slot string) *Source {
	v := m.v
	s := &Source{
		Up:              Gauge{v.up, []string{name}},
		Connected:       Gauge{v.connected, []string{name}},
		LagSeconds:      Gauge{v.lagSeconds, []string{name}},
		CheckpointLag:   Gauge{v.checkpointLag, []string{name}},
		CheckpointSaved: Gauge{v.checkpointSaved, []string{name}},
		LastMessage:     Gauge{v.lastMessage, []string{name}},
		SlotLag:         Gauge{v.slotLag, []string{name, slot}},
		SlotRetained:    Gauge{v.slotRetained, []string{name, slot}},
		SlotSafe:        Gauge{v.slotSafe, []string{name, slot}},
		SlotStatus:      Gauges{Gauge{v.slotStatus, []string{name, slot}}, WALStatuses},
		Transactions:    v.transactions.WithLabelValues(name),
		Bytes:           v.bytes.WithLabelValues(name),
		Gaps:            v.gaps.WithLabelValues(name),
		Reconnects:      counters(ReconnectReason, func(r string) prometheus.Counter { return v.reconnects.WithLabelValues(name, r) }),
		Workers:         Gauges{Gauge{v.workers, []string{name}}, WorkerStates},
		WorkerBusyRatio: Gauge{v.busy, []string{name}},
		metrics:         m,
		name:            name,
	}
	s.Up.Set(0)
	s.Connected.Set(0)
	return s
}

// Changes returns the counters of a table's row changes, by Operations. The table's label is its name, "public.docs".
func (s *Source) Changes(table string) Counters {
	label := s.metrics.pipelineLabel(s.name, "table "+table)
	if label != Other {
		label = table
	}
	return counters(Operations, func(op string) prometheus.Counter { return s.metrics.v.changes.WithLabelValues(s.name, label, op) })
}

// Pipeline holds the metrics of one pipeline.
type Pipeline struct {
	Tasks             Gauges   // by TaskStates
	OldestPending     Gauge    // seconds
	Paused            Gauge    // 1 or 0
	Skipped           Counters // by SkipReasons
	Enqueued          Counters // by Origins
	Deduplicated      prometheus.Counter
	Finished          Counters // by FinishOutcomes
	Retries           Counters // by ErrorClasses
	LeasesLost        prometheus.Counter
	Wait              prometheus.Observer // seconds
	Freshness         prometheus.Observer // seconds
	Writes            Counters            // by WriteOutcomes
	StaleDiscarded    prometheus.Counter
	WriteDuration     prometheus.Observer // seconds
	Coverage          Gauge               // 0 to 1
	BackfillRunning   Gauge               // 1 or 0
	BackfillExpected  Gauge               // rows
	BackfillProcessed prometheus.Counter  // rows
}

// Pipeline returns the metrics of a pipeline. Pipelines beyond the first MaxPipelines share theirs.
func (s *Source) Pipeline(name string) *Pipeline {
	v, source := s.metrics.v, s.name
	label := s.metrics.pipelineLabel(source, name)
	by := func(vec *prometheus.CounterVec, values []string) Counters {
		return counters(values, func(value string) prometheus.Counter { return vec.WithLabelValues(source, label, value) })
	}
	return &Pipeline{
		Tasks:             Gauges{Gauge{v.tasks, []string{source, label}}, TaskStates},
		OldestPending:     Gauge{v.oldest, []string{source, label}},
		Paused:            Gauge{v.paused, []string{source, label}},
		Skipped:           by(v.skipped, SkipReasons),
		Enqueued:          by(v.enqueued, Origins),
		Deduplicated:      v.deduplicated.WithLabelValues(source, label),
		Finished:          by(v.finished, FinishOutcomes),
		Retries:           by(v.retries, ErrorClasses),
		LeasesLost:        v.lost.WithLabelValues(source, label),
		Wait:              v.wait.WithLabelValues(source, label),
		Freshness:         v.freshness.WithLabelValues(source, label),
		Writes:            by(v.writes, WriteOutcomes),
		StaleDiscarded:    v.staleDiscarded.WithLabelValues(source, label),
		WriteDuration:     v.writeDuration.WithLabelValues(source, label),
		Coverage:          Gauge{v.coverage, []string{source, label}},
		BackfillRunning:   Gauge{v.backfillRunning, []string{source, label}},
		BackfillExpected:  Gauge{v.backfillExpected, []string{source, label}},
		BackfillProcessed: v.backfillProcessed.WithLabelValues(source, label),
	}
}

// Forget removes the metrics of a pipeline that is gone.
func (s *Source) Forget(name string) {
	labels := prometheus.Labels{"source": s.name, "pipeline": name}
	v := s.metrics.v
	for _, vec := range []*prometheus.GaugeVec{v.tasks, v.oldest, v.paused, v.coverage, v.backfillRunning, v.backfillExpected} {
		vec.DeletePartialMatch(labels)
	}
	for _, vec := range []*prometheus.CounterVec{v.skipped, v.enqueued, v.deduplicated, v.finished, v.retries, v.lost, v.writes, v.staleDiscarded, v.backfillProcessed} {
		vec.DeletePartialMatch(labels)
	}
	for _, vec := range []*prometheus.HistogramVec{v.wait, v.freshness, v.writeDuration} {
		vec.DeletePartialMatch(labels)
	}
	s.metrics.mu.Lock()
	defer s.metrics.mu.Unlock()
	delete(s.metrics.pipelines, [2]string{s.name, name})
}
