-- tell_history: record that rows that were processed without a task have lost their vector: nothing else would show it.
-- history_turn names the partition of history to write.
-- Parameters: arrays of one length, one element per row.
-- Rows: none. Locks: the new rows. Index: none; it only adds.
INSERT INTO embedsidecar.history (bucket, pipeline_id, row_key, outcome, attempt, worker_id, committed_at, lsn, took_ms,
    generation)
SELECT (SELECT h.bucket FROM embedsidecar.history_turn AS h), @pipeline_id, i.row_key, i.outcome, 1, @worker::bigint,
    i.committed_at, i.lsn, @took::integer, @generation::integer
FROM   unnest(@row_keys::text[], @outcomes::text[], @committed_ats::timestamptz[], @lsns::pg_lsn[]) AS i (row_key,
    outcome, committed_at, lsn);
