package metrics

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/embedsidecar/embedsidecar/internal/base/restart"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
)

// The values of labels; a counter takes others as "other".
var (
	SkipReasons    = []string{"own_write", "unchanged", "key_too_long"}
	WALStatuses    = []string{"reserved", "extended", "unreserved", "lost"}
	TaskStates     = []string{"todo", "in_progress", "retrying", "failed", "cancelled"}
	FinishOutcomes = []string{"embedded", "reused", "unchanged", "skipped", "emptied", "removed", "failed"}
	HintWords      = []string{"urgent", "low", "skip", "ignored"}
	AskOutcomes    = []string{"answered", "failed", "refused", "expired", "forged"}
	WriteOutcomes  = []string{"written", "locked", "stale"}
	EmbedOutcomes  = []string{"ok", "empty", "failed", "scored"}
	WorkerStates   = []string{"idle", "busy"}
	PoolStates     = []string{"idle", "acquired", "constructing", "max"}
	IndexStates    = []string{"ready", "none", "building", "invalid"}
	DatabaseStates = []string{"working", "quiet", "starting", "failing", "unserved"}
	PipelineStates = health.Codes()
	Parts          = restart.Names()
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

// Gauge is a measured value. It does not show before it was set for the first time: a 0 that nobody measured would be
// a lie.
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

// Unset makes them unknown again.
func (g Gauges) Unset() {
	for _, planned := range g.values {
		g.gauge.vec.DeleteLabelValues(append(slices.Clone(g.gauge.labels), planned)...)
	}
}

// Source holds the metrics of one database.
type Source struct {
	Up              Gauge  // 1 or 0
	Connected       Gauge  // 1 or 0
	ConfigRefused   Gauge  // 1 or 0
	ConfigWaits     Gauge  // settings
	CheckpointSaved Gauge  // Unix seconds
	LastMessage     Gauge  // Unix seconds
	SlotLag         Gauge  // bytes
	SlotRetained    Gauge  // bytes
	SlotSafe        Gauge  // bytes, +Inf without a limit
	SlotStatus      Gauges // by WALStatuses
	Changes         prometheus.Counter
	Transactions    prometheus.Counter
	Replayed        prometheus.Counter
	Bytes           prometheus.Counter
	Reconnects      prometheus.Counter
	Gaps            prometheus.Counter
	TableChanges    prometheus.Counter
	Skipped         Counters // by SkipReasons
	Panics          Counters // by Parts
	Enqueued        prometheus.Counter
	Deduplicated    prometheus.Counter
	Direct          prometheus.Counter // changes without a task
	Questions       Counters           // by AskOutcomes
	Hints           Counters           // by HintWords
	Workers         Gauges             // by WorkerStates
	WorkerBusyRatio Gauge

	metrics *Metrics
	name    string
}

// Source returns the metrics of a database and its slot. Those of one beyond the first MaxSources go nowhere.
func (m *Metrics) Source(name, slot string) *Source {
	m.mu.Lock()
	full := !m.sources[name] && len(m.sources) >= MaxSources
	if !full {
		m.sources[name] = true
	}
	m.mu.Unlock()
	if full {
		return New(Build{}).Source(name, slot)
	}
	v := m.v
	s := &Source{
		Up:              Gauge{v.up, []string{name}},
		Connected:       Gauge{v.connected, []string{name}},
		ConfigRefused:   Gauge{v.refused, []string{name}},
		ConfigWaits:     Gauge{v.waits, []string{name}},
		CheckpointSaved: Gauge{v.checkpointSaved, []string{name}},
		LastMessage:     Gauge{v.lastMessage, []string{name}},
		SlotLag:         Gauge{v.slotLag, []string{name, slot}},
		SlotRetained:    Gauge{v.slotRetained, []string{name, slot}},
		SlotSafe:        Gauge{v.slotSafe, []string{name, slot}},
		SlotStatus:      Gauges{Gauge{v.slotStatus, []string{name, slot}}, WALStatuses},
		Changes:         v.changes.WithLabelValues(name),
		Transactions:    v.transactions.WithLabelValues(name),
		Replayed:        v.replayed.WithLabelValues(name),
		Bytes:           v.bytes.WithLabelValues(name),
		Reconnects:      v.reconnects.WithLabelValues(name),
		Gaps:            v.gaps.WithLabelValues(name),
		TableChanges:    v.tableChanges.WithLabelValues(name),
		Skipped: counters(SkipReasons, func(r string) prometheus.Counter {
			return v.skipped.WithLabelValues(name,
				r)
		}),
		Panics: counters(Parts, func(part string) prometheus.Counter {
			return v.panics.WithLabelValues(name, part)
		}),
		Enqueued:     v.made.WithLabelValues(name),
		Deduplicated: v.joined.WithLabelValues(name),
		Direct:       v.direct.WithLabelValues(name),
		Questions: counters(AskOutcomes, func(o string) prometheus.Counter {
			return v.questions.WithLabelValues(name, o)
		}),
		Hints: counters(HintWords, func(word string) prometheus.Counter {
			return v.hints.WithLabelValues(name, word)
		}),
		Workers:         Gauges{Gauge{v.workers, []string{name}}, WorkerStates},
		WorkerBusyRatio: Gauge{v.busy, []string{name}},
		metrics:         m,
		name:            name,
	}
	s.Up.Set(0)
	s.Connected.Set(0)
	s.ConfigRefused.Set(0)
	s.ConfigWaits.Set(0)
	return s
}

// Close removes all metrics of a database that is gone.
func (s *Source) Close() {
	of := prometheus.Labels{"source": s.name}
	for _, vec := range s.metrics.v.ofSources {
		vec.DeletePartialMatch(of)
	}
	s.metrics.mu.Lock()
	defer s.metrics.mu.Unlock()
	delete(s.metrics.sources, s.name)
	maps.DeleteFunc(s.metrics.pipelines, func(key [2]string, _ bool) bool { return key[0] == s.name })
}

// Pipeline holds the metrics of one pipeline.
type Pipeline struct {
	Label        string   // its name, or Other
	Tasks        Gauges   // by TaskStates
	Oldest       Gauge    // seconds
	Paused       Gauge    // 1 or 0
	Finished     Counters // by FinishOutcomes
	Retries      prometheus.Counter
	LeasesLost   prometheus.Counter
	Crashes      prometheus.Counter
	Freshness    prometheus.Observer // seconds
	Writes       Counters            // by WriteOutcomes
	Sanitised    prometheus.Counter
	Tokens       prometheus.Counter
	Coverage     Gauge  // 0 to 1
	Budget       Gauge  // spent of it, 0 to 1 and more
	ScanRunning  Gauge  // 1 or 0
	ScanExpected Gauge  // rows
	ScanSeen     Gauge  // rows
	Index        Gauges // by IndexStates
	State        Gauges // by PipelineStates
}

// Pipeline returns the metrics of a pipeline. Pipelines beyond the first MaxPipelines share theirs.
func (s *Source) Pipeline(name string) *Pipeline {
	v, source := s.metrics.v, s.name
	label := s.metrics.pipelineLabel(source, name)
	by := func(vec *prometheus.CounterVec, values []string) Counters {
		return counters(values, func(value string) prometheus.Counter { return vec.WithLabelValues(source, label, value) })
	}
	return &Pipeline{
		Label:        label,
		Tasks:        Gauges{Gauge{v.tasks, []string{source, label}}, TaskStates},
		Oldest:       Gauge{v.oldest, []string{source, label}},
		Paused:       Gauge{v.paused, []string{source, label}},
		Finished:     by(v.finished, FinishOutcomes),
		Retries:      v.retries.WithLabelValues(source, label),
		LeasesLost:   v.lost.WithLabelValues(source, label),
		Crashes:      v.crashes.WithLabelValues(source, label),
		Freshness:    v.freshness.WithLabelValues(source, label),
		Writes:       by(v.writes, WriteOutcomes),
		Sanitised:    v.sanitised.WithLabelValues(source, label),
		Tokens:       v.spent.WithLabelValues(source, label),
		Coverage:     Gauge{v.coverage, []string{source, label}},
		Budget:       Gauge{v.budget, []string{source, label}},
		ScanRunning:  Gauge{v.scanRunning, []string{source, label}},
		ScanExpected: Gauge{v.scanExpected, []string{source, label}},
		ScanSeen:     Gauge{v.scanSeen, []string{source, label}},
		Index:        Gauges{Gauge{v.index, []string{source, label}}, IndexStates},
		State:        Gauges{Gauge{v.state, []string{source, label}}, PipelineStates},
	}
}

// Stopped names the state of a pipeline that shares its other metrics; "" takes the one of before away.
func (s *Source) Stopped(name, before, state string) {
	if before != "" && before != state {
		s.metrics.v.state.DeleteLabelValues(s.name, name, before)
	}
	if state != "" {
		s.metrics.v.state.WithLabelValues(s.name, name, state).Set(1)
	}
}

// Labelled shows the labels of a pipeline in place of those of before. Of pipelines that share their metrics none are.
func (s *Source) Labelled(name string, before, labels map[string]string) {
	for key, value := range before {
		if labels[key] != value {
			s.metrics.v.label.DeleteLabelValues(s.name, name, key, value)
		}
	}
	for key, value := range labels {
		s.metrics.v.label.WithLabelValues(s.name, name, key, value).Set(1)
	}
}

// Forget removes the metrics of a pipeline that is gone.
func (s *Source) Forget(name string) {
	labels := prometheus.Labels{"source": s.name, "pipeline": name}
	v := s.metrics.v
	for _, vec := range []*prometheus.GaugeVec{
		v.tasks, v.oldest, v.paused, v.coverage, v.budget, v.scanRunning, v.scanExpected,
		v.scanSeen, v.index, v.state, v.label,
	} {
		vec.DeletePartialMatch(labels)
	}
	for _, vec := range []*prometheus.CounterVec{v.finished, v.retries, v.lost, v.writes, v.sanitised, v.spent} {
		vec.DeletePartialMatch(labels)
	}
	v.freshness.DeletePartialMatch(labels)
	s.metrics.mu.Lock()
	defer s.metrics.mu.Unlock()
	delete(s.metrics.pipelines, [2]string{s.name, name})
}
