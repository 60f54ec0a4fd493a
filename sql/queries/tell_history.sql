-- tell_history: say of rows that were worked without a task that they have lost their vector: nothing else is left to
-- tell of it. history_turn names the partition of history that is written.
-- Parameters: arrays of one length, one element per row.
-- Rows: none. Locks: the new rows. Index: none; it only adds.
INSERT INTO embedsidecar.history (bucket, pipeline_id, row_key, outcome, attempt, worker_id, committed_at, lsn, took_ms,
    generation)
SELECT (SELECT h.bucket FROM embedsidecar.history_turn AS h), @pipeline_id, i.row_key, i.outcome, 1, @worker::bigint,
    i.committed_at, i.lsn, @took::integer, @generation::integer
FROM   unnest(@row_keys::text[], @outcomes::text[], @committed_ats::timestamptz[], @lsns::pg_lsn[]) AS i (row_key,
    outcome, committed_at, lsn);
