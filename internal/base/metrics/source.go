package metrics

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/embedsidecar/embedsidecar/internal/base/restart"
)

// The values of labels; counters count others as "other".
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
	Parts          = restart.Names()
)

// Counters are counters that differ in one label.
type Counters struct {
	planned map[string]prometheus.Counter
	with    func(value string) prometheus.Counter
}

// At returns the counter for a label value. Unplanned values are counted together as "other", so that new values, such
// as classes of errors, cannot exhaust a scraper's memory.
func (c Counters) At(value string) prometheus.Counter {
	if counter, ok := c.planned[value]; ok {
		return counter
	}
	return c.with("other")
}

// Gauge is a measured value. It is not exported before it was first set, because 0 would be wrong.
type Gauge struct {
	vec    *prometheus.GaugeVec
	labels []string
}

// Set sets its value.
func (g Gauge) Set(to float64) { g.vec.WithLabelValues(g.labels...).Set(to) }

// Unset removes it until the next Set.
func (g Gauge) Unset() { g.vec.DeleteLabelValues(g.labels...) }

// Gauges are gauges that differ in their last label. All are exported, at 0, after the first Set.
type Gauges struct {
	gauge  Gauge
	values []string
}

// Set sets the gauge for a label value; it ignores unplanned values.
func (g Gauges) Set(value string, to float64) {
	for _, planned := range g.values {
		gauge := g.gauge.vec.WithLabelValues(append(slices.Clip(g.gauge.labels), planned)...)
		if planned == value {
			gauge.Set(to)
		}
	}
}

// Only sets one gauge to 1 and all others to 0.
func (g Gauges) Only(value string) {
	for _, planned := range g.values {
		g.gauge.vec.WithLabelValues(append(slices.Clip(g.gauge.labels), planned)...).Set(Bool(planned == value))
	}
}

// Unset removes them until the next Set.
func (g Gauges) Unset() {
	for _, planned := range g.values {
		g.gauge.vec.DeleteLabelValues(append(slices.Clip(g.gauge.labels), planned)...)
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

	of    labelled
	state *prometheus.GaugeVec // of pipelines
	label *prometheus.GaugeVec
}

// Source returns the metrics of a database and its slot. Those beyond the first MaxSources are not exported.
func (m *Metrics) Source(name, slot string) *Source {
	m.mu.Lock()
	full := !m.sources[name] && len(m.sources) >= MaxSources
	if !full {
		m.sources[name] = true
	}
	m.mu.Unlock()
	if full {
		return New(Build{}, m.states).Source(name, slot)
	}
	of := labelled{of: m}.with("source", name)
	its := of.with("slot", slot)
	s := &Source{
		Up: of.gauge("up", "1 while the database of this source can be used, else 0."),
		Connected: of.gauge("replication_connected",
			"1 while this sidecar streams from the slot, else 0; a sidecar that stands by has 0."),
		ConfigRefused: of.gauge("configuration_refused",
			"1 while the current configuration has mistakes and the previous one stays in force, else 0."),
		ConfigWaits: of.gauge("configuration_needs_restart",
			"Settings that were changed in the file and take effect at the next start."),
		CheckpointSaved: of.gauge("checkpoint_last_saved_timestamp_seconds",
			"When the LSN checkpoint was last stored, as Unix time."),
		LastMessage: of.gauge("replication_last_message_timestamp_seconds",
			"When the server last sent anything, as Unix time."),
		SlotLag:      its.gauge("slot_lag_bytes", "WAL between the server's end and what is decoded and durable."),
		SlotRetained: its.gauge("slot_retained_wal_bytes", "WAL the server keeps for the slot."),
		SlotSafe: its.gauge("slot_safe_wal_bytes",
			"WAL that can still be written before the slot is in danger of being lost; +Inf without a limit."),
		SlotStatus: its.gauges("slot_wal_status", "1 for the wal_status the slot has, 0 for the others.", "status",
			WALStatuses),
		Changes:      of.counter("replication_changes_total", "Row changes decoded."),
		Transactions: of.counter("replication_transactions_total", "Transactions decoded."),
		Replayed: of.counter("replication_replayed_transactions_total",
			"Transactions that were read again after a restart; they also count as decoded."),
		Bytes: of.counter("replication_bytes_total", "Bytes of changes received."),
		Reconnects: of.counter("replication_reconnects_total",
			"Times the stream was opened again after an interruption."),
		Gaps: of.counter("replication_gaps_total",
			"Times changes may have been missed; each time a new slot was created and every row compared."),
		TableChanges: of.counter("replication_table_changes_total",
			"Times a table had changed in a way that the WAL does not show; each time its rows were compared."),
		Skipped: of.counters("changes_skipped_total", "Row changes that made no task: own writes, updates that changed "+
			"nothing that is embedded, and rows whose key is too long.", "reason", SkipReasons),
		Panics: of.counters("panics_total",
			"Times a loop of this sidecar panicked, a bug of embedsidecar, and was restarted.", "part", Parts),
		Enqueued:     of.counter("tasks_enqueued_total", "Tasks created for changes."),
		Deduplicated: of.counter("tasks_deduplicated_total", "Changes that joined an open task."),
		Direct:       of.counter("changes_direct_total", "Row changes that were embedded directly, without a task."),
		Questions: of.counters("sql_questions_total", "Texts whose vectors were requested by SQL.", "outcome",
			AskOutcomes),
		Hints:           of.counters("hints_total", "Hints of transactions about their changes.", "hint", HintWords),
		Workers:         of.gauges("workers", "Workers of this sidecar by state.", "state", WorkerStates),
		WorkerBusyRatio: of.gauge("worker_busy_ratio", "Share of the workers that have a batch, 0 to 1."),

		of:    of,
		state: of.gauge("pipeline_state", stateHelp, "pipeline", "state").vec,
		label: of.gauge("pipeline_label", "1 for each label that the pipeline is configured with.", "pipeline", "key",
			"value").vec,
	}
	for _, g := range []Gauge{s.Up, s.Connected, s.ConfigRefused, s.ConfigWaits} {
		g.Set(0)
	}
	return s
}

const stateHelp = "1 for the state of the pipeline, 0 for the others."

// name returns the database's name.
func (s *Source) name() string { return s.of.values[0] }

// Close removes all metrics of a removed database.
func (s *Source) Close() {
	s.of.remove()
	m := s.of.of
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sources, s.name())
	maps.DeleteFunc(m.pipelines, func(key [2]string, _ bool) bool { return key[0] == s.name() })
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
	Budget       Gauge  // used share, 0 to 1 and more
	ScanRunning  Gauge  // 1 or 0
	ScanExpected Gauge  // rows
	ScanSeen     Gauge  // rows
	Index        Gauges // by IndexStates
	State        Gauges // by the states that New was given
}

// Pipeline returns the metrics of a pipeline. Pipelines beyond the first MaxPipelines share theirs.
func (s *Source) Pipeline(name string) *Pipeline {
	label := s.of.of.pipelineLabel(s.name(), name)
	of := s.of.with("pipeline", label)
	return &Pipeline{
		Label: label,
		Tasks: of.gauges("queue_tasks", "Open tasks by state, and dead letters (failed).", "state", TaskStates),
		Oldest: of.gauge("queue_oldest_pending_age_seconds",
			"Age of the oldest open task; 0 when there is none."),
		Paused: of.gauge("queue_paused",
			"1 while the pipeline is paused, outside its hours, or its budget is spent, else 0."),
		Finished: of.counters("tasks_finished_total", "Tasks that left the queue or became dead letters.", "outcome",
			FinishOutcomes),
		Retries: of.counter("task_retries_total", "Tasks that are retried later."),
		LeasesLost: of.counter("task_leases_lost_total",
			"Leases that ran out or were taken over before their work was written."),
		Crashes:   of.counter("task_embedder_crashes_total", "Tasks that were with an embedder when it died."),
		Freshness: of.histogram("freshness_seconds", "Time from the commit of a row to its vector being visible.", longTimes),
		Writes: of.counters("writes_total", "Rows of a write-back: written, postponed because they were locked, or "+
			"discarded because the lease had expired or the row had changed.", "outcome", WriteOutcomes),
		Sanitised: of.counter("texts_sanitised_total", "Texts whose invalid UTF-8 bytes were replaced."),
		Tokens:    of.counter("embedded_tokens_total", "Tokens that the embedder saw for a pipeline."),
		Coverage: of.gauge("coverage_ratio", "Rows whose vector is known to be of their text now, divided by rows of the "+
			"source table, 0 to 1; the latter may be an estimate."),
		Budget: of.gauge("budget_spent_ratio",
			"Spent share of the budget that ends first, of the pipeline or of its model; may slightly exceed 1."),
		ScanRunning:  of.gauge("backfill_running", "1 while every row is compared with what was written for it, else 0."),
		ScanExpected: of.gauge("backfill_rows_expected", "Rows that the last comparison of every row expected."),
		ScanSeen:     of.gauge("backfill_rows_seen", "Rows that it has compared."),
		Index: of.gauges("vector_index_state",
			"1 for the state of the index over the vectors, the worst where there are several, 0 for the others.", "state",
			IndexStates),
		State: of.gauges("pipeline_state", stateHelp, "state", s.of.of.states),
	}
}

// Stopped sets the state of a pipeline with shared metrics, and removes the previous one; "": none.
func (s *Source) Stopped(name, before, state string) {
	if before != "" && before != state {
		s.state.DeleteLabelValues(s.name(), name, before)
	}
	if state != "" {
		s.state.WithLabelValues(s.name(), name, state).Set(1)
	}
}

// Labelled replaces the exported labels of a pipeline. Pipelines with shared metrics have none.
func (s *Source) Labelled(name string, before, labels map[string]string) {
	for key, value := range before {
		if labels[key] != value {
			s.label.DeleteLabelValues(s.name(), name, key, value)
		}
	}
	for key, value := range labels {
		s.label.WithLabelValues(s.name(), name, key, value).Set(1)
	}
}

// Forget removes the metrics of a removed pipeline.
func (s *Source) Forget(name string) {
	s.of.with("pipeline", name).remove()
	m := s.of.of
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pipelines, [2]string{s.name(), name})
}
