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
	build, up *prometheus.GaugeVec

	// replication
	connected, lagSeconds, slotLag, slotRetained, slotSafe, slotStatus, checkpointLag, checkpointSaved, lastMessage *prometheus.GaugeVec
	changes, transactions, bytes, reconnects, gaps, skipped                                                         *prometheus.CounterVec

	// queue
	tasks, oldest, paused                           *prometheus.GaugeVec
	enqueued, deduplicated, finished, retries, lost *prometheus.CounterVec
	wait, freshness                                 *prometheus.HistogramVec

	// embedding
	embeddings, tokens, truncated, cacheHits, cacheMisses *prometheus.CounterVec
	embedDuration, batchRows                              *prometheus.HistogramVec

	// writing
	writes, staleDiscarded *prometheus.CounterVec
	writeDuration          *prometheus.HistogramVec

	// work
	coverage, backfillRunning, backfillExpected, workers, busy *prometheus.GaugeVec
	backfillProcessed                                          *prometheus.CounterVec
	pluginUp, circuitOpen                                      *prometheus.GaugeVec
	pluginRestarts, pluginBad                                  *prometheus.CounterVec

	// self
	pool *prometheus.GaugeVec
}

func newVectors(r *prometheus.Registry) vectors {
	f := factory{r}
	return vectors{
		build: f.gauge("build_info", "Always 1; the labels tell what is running.", "version", "revision", "goversion"),
		up:    f.gauge("up", "1 while the database of this source can be worked with, else 0.", "source"),

		connected:       f.gauge("replication_connected", "1 while this sidecar streams from the slot, else 0; a sidecar that stands by has 0.", "source"),
		lagSeconds:      f.gauge("replication_lag_seconds", "Age of the newest change that is decoded and durable, while there are newer ones; 0 when there are none.", "source"),
		slotLag:         f.gauge("slot_lag_bytes", "WAL between the server's end and what is decoded and durable.", "source", "slot"),
		slotRetained:    f.gauge("slot_retained_wal_bytes", "WAL the server keeps for the slot.", "source", "slot"),
		slotSafe:        f.gauge("slot_safe_wal_bytes", "WAL that can still be written before the slot is in danger of being lost; +Inf without a limit.", "source", "slot"),
		slotStatus:      f.gauge("slot_wal_status", "1 for the wal_status the slot has, 0 for the others.", "source", "slot", "status"),
		checkpointLag:   f.gauge("checkpoint_lag_bytes", "WAL between the stored LSN checkpoint and the server's end.", "source"),
		checkpointSaved: f.gauge("checkpoint_last_saved_timestamp_seconds", "When the LSN checkpoint was last stored, as Unix time.", "source"),
		lastMessage:     f.gauge("replication_last_message_timestamp_seconds", "When the server last sent anything, as Unix time.", "source"),
		changes:         f.counter("replication_changes_total", "Row changes decoded.", "source", "table", "op"),
		transactions:    f.counter("replication_transactions_total", "Transactions decoded.", "source"),
		bytes:           f.counter("replication_bytes_total", "Bytes of changes received.", "source"),
		reconnects:      f.counter("replication_reconnects_total", "Times the stream was opened again.", "source", "reason"),
		gaps:            f.counter("replication_gaps_total", "Times changes may have been missed, answered by a new slot and a comparison of every row.", "source"),
		skipped:         f.counter("changes_skipped_total", "Row changes that made no task.", "source", "pipeline", "reason"),

		tasks:        f.gauge("queue_tasks", "Open tasks by state, and dead letters (failed).", "source", "pipeline", "state"),
		oldest:       f.gauge("queue_oldest_pending_age_seconds", "For how long the oldest open task has waited; 0 when there is none.", "source", "pipeline"),
		paused:       f.gauge("queue_paused", "1 while no task of the pipeline is leased because somebody said so, else 0.", "source", "pipeline"),
		enqueued:     f.counter("tasks_enqueued_total", "Tasks made.", "source", "pipeline", "origin"),
		deduplicated: f.counter("tasks_deduplicated_total", "Changes that joined a task which was open already.", "source", "pipeline"),
		finished:     f.counter("tasks_finished_total", "Tasks that left the queue or became dead letters.", "source", "pipeline", "outcome"),
		retries:      f.counter("task_retries_total", "Tasks put back to be tried later.", "source", "pipeline", "error_class"),
		lost:         f.counter("task_leases_lost_total", "Leases that ran out or were taken over before their work was written.", "source", "pipeline"),
		wait:         f.histogram("task_wait_seconds", "Time from enqueueing a task to leasing it.", longTimes, "source", "pipeline"),
		freshness:    f.histogram("freshness_seconds", "Time from the commit of a row to its vector being visible.", longTimes, "source", "pipeline"),

		embeddings:    f.counter("embeddings_total", "Texts an embedder was asked for.", "model", "plugin", "outcome"),
		tokens:        f.counter("embedding_tokens_total", "Tokens seen by the model.", "model"),
		truncated:     f.counter("embedding_truncated_total", "Texts longer than the model takes, cut at the end.", "model"),
		cacheHits:     f.counter("embedding_cache_hits_total", "Vectors reused because the same model had embedded the same text before.", "model"),
		cacheMisses:   f.counter("embedding_cache_misses_total", "Texts for which no vector could be reused.", "model"),
		embedDuration: f.histogram("embedding_duration_seconds", "Time of a call to an embedder.", shortTimes, "model", "plugin"),
		batchRows:     f.histogram("embedding_batch_rows", "Texts in a call to an embedder.", batchSizes, "model"),

		writes:         f.counter("writes_total", "Rows of a write-back.", "source", "pipeline", "outcome"),
		staleDiscarded: f.counter("writes_stale_discarded_total", "Vectors thrown away because their row had changed meanwhile.", "source", "pipeline"),
		writeDuration:  f.histogram("write_duration_seconds", "Time of a write-back transaction.", shortTimes, "source", "pipeline"),

		coverage:          f.gauge("coverage_ratio", "Rows with an up-to-date vector divided by rows that should have one, 0 to 1.", "source", "pipeline"),
		backfillRunning:   f.gauge("backfill_running", "1 while rows older than the slot are looked for, else 0.", "source", "pipeline"),
		backfillExpected:  f.gauge("backfill_rows_expected", "Rows the running backfill expects to look at.", "source", "pipeline"),
		backfillProcessed: f.counter("backfill_rows_processed_total", "Rows that backfills have looked at.", "source", "pipeline"),
		workers:           f.gauge("workers", "Workers of this sidecar by state.", "source", "state"),
		busy:              f.gauge("worker_busy_ratio", "Part of the workers that have a batch, 0 to 1.", "source"),
		pluginUp:          f.gauge("plugin_up", "1 while the plugin's process runs and has described itself, else 0.", "plugin", "version"),
		circuitOpen:       f.gauge("circuit_open", "1 while the plugin fails so often that nothing is sent to it, else 0.", "plugin"),
		pluginRestarts:    f.counter("plugin_restarts_total", "Times the plugin's process was started again.", "plugin"),
		pluginBad:         f.counter("plugin_bad_answers_total", "Answers of the plugin that could not be believed.", "plugin"),

		pool: f.gauge("db_pool_connections", "Connections of a pool by state.", "pool", "state"),
	}
}
