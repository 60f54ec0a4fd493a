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
    'Sidecars that work on the queue of this database, and those that ended recently.';
COMMENT ON COLUMN embedsidecar.workers.worker_id IS 'Its number.';
COMMENT ON COLUMN embedsidecar.workers.instance IS 'Its name.';
COMMENT ON COLUMN embedsidecar.workers.version IS 'Version of the program.';
COMMENT ON COLUMN embedsidecar.workers.slot_name IS 'Its slot.';
COMMENT ON COLUMN embedsidecar.workers.stream IS
    'What it does with the slot: starting, streaming, standby, making (the slot), stuck, quiet (disconnected until '
    'something changes) or none.';
COMMENT ON COLUMN embedsidecar.workers.stream_detail IS 'Why the stream does not work.';
COMMENT ON COLUMN embedsidecar.workers.problems IS
    'Why it does not work on pipelines, by pipeline_id: code and detail.';
COMMENT ON COLUMN embedsidecar.workers.started_at IS 'When it started.';
COMMENT ON COLUMN embedsidecar.workers.last_seen_at IS 'Its last heartbeat.';
COMMENT ON COLUMN embedsidecar.workers.runs IS 'Whether it was seen recently and a session of its name exists.';
COMMENT ON COLUMN embedsidecar.workers.rows_leased IS 'Rows that it is embedding.';
COMMENT ON COLUMN embedsidecar.workers.processed_24h IS
    'Rows that it processed in the last 24 hours: the sum of the next two columns.';
COMMENT ON COLUMN embedsidecar.workers.succeeded_24h IS 'Rows that it finished; updated about every minute.';
COMMENT ON COLUMN embedsidecar.workers.failed_24h IS 'Rows that became dead letters.';
COMMENT ON COLUMN embedsidecar.workers.last_batch_at IS 'When its last batch ended.';
COMMENT ON COLUMN embedsidecar.workers.role IS
    'all, stream or work; empty: an older version, which does not report it.';
COMMENT ON COLUMN embedsidecar.workers.host IS 'The name of its machine.';
COMMENT ON COLUMN embedsidecar.workers.speeds IS
    'Its recent speed by pipeline_id: rows, texts and calls of the embedder per second, and milliseconds of a call.';
