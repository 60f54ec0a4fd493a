package metrics

import "github.com/prometheus/client_golang/prometheus"

// Buckets of times: from a millisecond, where an idle sidecar is, to the minutes and hours of a backlog.
var (
	shortTimes = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	longTimes  = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15, 60, 300, 900, 3600, 14400}
	batchSizes = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}
)

// vectors are all metrics with their labels open.
type vectors struct {
	embedding

	build, up, refused, waits *prometheus.GaugeVec

	// replication
	connected, slotLag, slotRetained, slotSafe, slotStatus, checkpointSaved, lastMessage *prometheus.GaugeVec
	changes, transactions, replayed, bytes, reconnects, gaps, tableChanges               *prometheus.CounterVec
	skipped, direct, made, joined, questions, hints                                      *prometheus.CounterVec

	// queue
	tasks, oldest, paused            *prometheus.GaugeVec
	finished, retries, lost, crashes *prometheus.CounterVec
	freshness                        *prometheus.HistogramVec

	// writing
	writes, sanitised, spent *prometheus.CounterVec

	// work
	coverage, budget, scanRunning, scanExpected, scanSeen, index, state, label, workers, busy *prometheus.GaugeVec

	// self
	panics *prometheus.CounterVec

	databases, pool *prometheus.GaugeVec
	http            *prometheus.HistogramVec

	ofSources []vec // those with the label source
}

// embedding are those of models and plugins, which all databases share.
type embedding struct {
	embeddings, tokens, truncated, cacheHits, cacheMisses *prometheus.CounterVec
	embedDuration, batchRows                              *prometheus.HistogramVec
	pluginUp, circuitOpen                                 *prometheus.GaugeVec
	pluginRestarts, pluginBad                             *prometheus.CounterVec
}

// vec is a metric with its labels open, of any kind.
type vec interface {
	DeletePartialMatch(labels prometheus.Labels) int
}

func newVectors(r *prometheus.Registry) vectors {
	f := &factory{r: r}
	v := vectors{
		embedding: newEmbedding(f),

		build: f.gauge("build_info", "Always 1; the labels tell what is running.", "version", "revision", "goversion"),
		up:    f.gauge("up", "1 while the database of this source can be worked with, else 0.", "source"),

		refused: f.gauge("configuration_refused",
			"1 while the configuration, as it is written down now, has mistakes and the one before is in force, else 0.",
			"source"),
		waits: f.gauge("configuration_needs_restart",
			"Settings that were changed in the file and take effect at the next start.", "source"),
		connected: f.gauge("replication_connected",
			"1 while this sidecar streams from the slot, else 0; a sidecar that stands by has 0.", "source"),
		slotLag: f.gauge("slot_lag_bytes", "WAL between the server's end and what is decoded and durable.", "source",
			"slot"),
		slotRetained: f.gauge("slot_retained_wal_bytes", "WAL the server keeps for the slot.", "source", "slot"),
		slotSafe: f.gauge("slot_safe_wal_bytes",
			"WAL that can still be written before the slot is in danger of being lost; +Inf without a limit.", "source", "slot"),
		slotStatus: f.gauge("slot_wal_status", "1 for the wal_status the slot has, 0 for the others.", "source", "slot",
			"status"),
		checkpointSaved: f.gauge("checkpoint_last_saved_timestamp_seconds",
			"When the LSN checkpoint was last stored, as Unix time.", "source"),
		lastMessage: f.gauge("replication_last_message_timestamp_seconds",
			"When the server last sent anything, as Unix time.", "source"),
		changes:      f.counter("replication_changes_total", "Row changes decoded.", "source"),
		transactions: f.counter("replication_transactions_total", "Transactions decoded.", "source"),
		replayed: f.counter("replication_replayed_transactions_total",
			"Transactions that came again after a restart; they are among those decoded.", "source"),
		reconnects: f.counter("replication_reconnects_total", "Times the stream was opened again after an interruption.",
			"source"),
		tableChanges: f.counter("replication_table_changes_total",
			"Times a table was found changed in a way the WAL does not tell, answered by comparing its rows.", "source"),
		skipped: f.counter("changes_skipped_total",
			"Row changes that made no task: own writes, updates that changed nothing that is embedded, and rows whose key is too long.", "source", "reason"),
		questions: f.counter("sql_questions_total", "Texts whose vectors were requested by SQL.", "source", "outcome"),
		hints:     f.counter("hints_total", "Hints of transactions about their changes.", "source", "hint"),
		direct:    f.counter("changes_direct_total", "Row changes that were worked at once and needed no task.", "source"),
		made:      f.counter("tasks_enqueued_total", "Tasks made of changes.", "source"),
		joined: f.counter("tasks_deduplicated_total", "Changes that joined a task which was open already.",
			"source"),
		bytes: f.counter("replication_bytes_total", "Bytes of changes received.", "source"),
		gaps: f.counter("replication_gaps_total",
			"Times changes may have been missed, answered by a new slot and a comparison of every row.", "source"),

		tasks: f.gauge("queue_tasks", "Open tasks by state, and dead letters (failed).", "source", "pipeline", "state"),
		oldest: f.gauge("queue_oldest_pending_age_seconds",
			"For how long the oldest open task has waited; 0 when there is none.", "source", "pipeline"),
		paused: f.gauge("queue_paused",
			"1 while the pipeline is paused, outside of its hours or without a budget left, else 0.",
			"source", "pipeline"),
		finished: f.counter("tasks_finished_total", "Tasks that left the queue or became dead letters.", "source",
			"pipeline", "outcome"),
		retries: f.counter("task_retries_total", "Tasks put back to be tried later.", "source", "pipeline"),
		lost: f.counter("task_leases_lost_total",
			"Leases that ran out or were taken over before their work was written.", "source", "pipeline"),
		crashes: f.counter("task_embedder_crashes_total", "Tasks that were with an embedder when it died.", "source",
			"pipeline"),
		freshness: f.histogram("freshness_seconds", "Time from the commit of a row to its vector being visible.", longTimes,
			"source", "pipeline"),

		writes: f.counter("writes_total",
			"Rows of a write-back: written, postponed because they were locked, or discarded because the lease had expired or the row had changed.", "source", "pipeline", "outcome"),
		spent: f.counter("embedded_tokens_total", "Tokens that the embedder saw for a pipeline.", "source", "pipeline"),
		sanitised: f.counter("texts_sanitised_total", "Texts with bytes that are no UTF-8, which were replaced.", "source",
			"pipeline"),

		scanRunning: f.gauge("backfill_running", "1 while every row is compared with what is known of it, else 0.",
			"source", "pipeline"),
		scanExpected: f.gauge("backfill_rows_expected", "Rows the last comparison of every row expected to look at.",
			"source", "pipeline"),
		scanSeen: f.gauge("backfill_rows_seen", "Rows it has looked at so far.", "source", "pipeline"),
		coverage: f.gauge("coverage_ratio",
			"Rows whose vector is known to be of their text now, divided by rows of the source table, 0 to 1; the latter may be an estimate.", "source", "pipeline"),
		budget: f.gauge("budget_spent_ratio",
			"What is spent of the budget of the pipeline or of its model that ends first, 0 to 1 and a little more.",
			"source", "pipeline"),
		index: f.gauge("vector_index_state",
			"1 for the state of the index over the vectors, the worst where there are several, 0 for the others.", "source",
			"pipeline", "state"),
		state: f.gauge("pipeline_state", "1 for the state of the pipeline, 0 for the others.", "source", "pipeline",
			"state"),
		label: f.gauge("pipeline_label", "1 for each label that the pipeline is configured with.", "source", "pipeline",
			"key", "value"),
		workers: f.gauge("workers", "Workers of this sidecar by state.", "source", "state"),
		busy:    f.gauge("worker_busy_ratio", "Part of the workers that have a batch, 0 to 1.", "source"),
		panics: f.counter("panics_total",
			"Times a loop of this sidecar panicked, which is a mistake of embedsidecar's, and began again.", "source", "part"),
		databases: f.gauge("databases",
			"Databases of this sidecar by state, where several are configured.", "state"),
		pool: f.gauge("db_pool_connections", "Connections of a pool by state.", "pool", "state"),
		http: f.histogram("http_request_duration_seconds", "Time of a query, from its header to its answer.", shortTimes,
			"handler", "method", "code"),
	}
	v.ofSources = f.ofSources
	return v
}

func newEmbedding(f *factory) embedding {
	return embedding{
		embeddings: f.counter("embeddings_total", "Texts sent to an embedder or a reranker.", "model", "plugin", "outcome"),
		tokens:     f.counter("embedding_tokens_total", "Tokens seen by the model.", "model"),
		truncated:  f.counter("embedding_truncated_total", "Texts longer than the model takes, cut at the end.", "model"),
		cacheHits: f.counter("embedding_cache_hits_total",
			"Vectors reused because the same model had embedded the same text before.", "model"),
		cacheMisses: f.counter("embedding_cache_misses_total", "Texts for which no vector could be reused.", "model"),
		embedDuration: f.histogram("embedding_duration_seconds", "Time of a call to an embedder or a reranker.", shortTimes, "model",
			"plugin"),
		batchRows: f.histogram("embedding_batch_rows", "Texts in a call to an embedder or a reranker.", batchSizes, "model"),
		pluginUp: f.gauge("plugin_up", "1 while the plugin's process runs and has described itself, else 0.", "plugin",
			"version"),
		circuitOpen: f.gauge("circuit_open", "1 while the plugin fails so often that nothing is sent to it, else 0.",
			"plugin"),
		pluginRestarts: f.counter("plugin_restarts_total", "Times the plugin's process was started again.", "plugin"),
		pluginBad:      f.counter("plugin_bad_answers_total", "Answers of the plugin that could not be believed.", "plugin"),
	}
}
