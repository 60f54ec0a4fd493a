CREATE OR REPLACE VIEW embedsidecar.workers AS
SELECT w.worker_id, w.instance, w.version, w.slot_name, w.stream, w.stream_detail, w.problems, w.started_at,
    w.last_seen_at,
       embedsidecar.runs(w) AS runs,
       (SELECT coalesce(sum(cardinality(l.task_ids)), 0) FROM embedsidecar.lease AS l WHERE l.worker_id = w.worker_id
           AND l.leased_until >= now()) AS rows_leased,
       w.succeeded_24h + w.failed_24h AS processed_24h, w.succeeded_24h, w.failed_24h, w.last_batch_at, w.role, w.host,
           w.speeds
FROM   embedsidecar.worker AS w;
COMMENT ON VIEW embedsidecar.workers IS
    'Sidecars that work the queue of this database, and those that ended a short while ago.';
COMMENT ON COLUMN embedsidecar.workers.worker_id IS 'Its number.';
COMMENT ON COLUMN embedsidecar.workers.instance IS 'Its name.';
COMMENT ON COLUMN embedsidecar.workers.version IS 'Of the program.';
COMMENT ON COLUMN embedsidecar.workers.slot_name IS 'The slot that it is for.';
COMMENT ON COLUMN embedsidecar.workers.stream IS
    'What it does about the slot: starting, streaming, standby, making (the slot), stuck, quiet (it has left until '
    'something changes) or none.';
COMMENT ON COLUMN embedsidecar.workers.stream_detail IS 'Why its stream is not what it should be.';
COMMENT ON COLUMN embedsidecar.workers.problems IS 'Why it does not work a pipeline, by pipeline_id: code and detail.';
COMMENT ON COLUMN embedsidecar.workers.started_at IS 'When it started.';
COMMENT ON COLUMN embedsidecar.workers.last_seen_at IS 'Its last sign of life.';
COMMENT ON COLUMN embedsidecar.workers.runs IS 'It was seen of late, and a session of its name is there.';
COMMENT ON COLUMN embedsidecar.workers.rows_leased IS 'Rows that it is embedding.';
COMMENT ON COLUMN embedsidecar.workers.processed_24h IS
    'Rows that it was done with in the last 24 hours: those of the next two columns.';
COMMENT ON COLUMN embedsidecar.workers.succeeded_24h IS 'Rows that it finished; up to about a minute ago.';
COMMENT ON COLUMN embedsidecar.workers.failed_24h IS 'Rows that it made dead letters of.';
COMMENT ON COLUMN embedsidecar.workers.last_batch_at IS 'When its last batch ended.';
COMMENT ON COLUMN embedsidecar.workers.role IS
    'What it does: all, stream or work; empty: a version of before has not said it.';
COMMENT ON COLUMN embedsidecar.workers.host IS 'The name of its machine, as that has it.';
COMMENT ON COLUMN embedsidecar.workers.speeds IS
    'What it has done of late in a second, by pipeline_id: rows, texts, calls of the embedder, and milliseconds of a '
    'call.';
