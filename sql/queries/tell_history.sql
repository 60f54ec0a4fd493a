-- tell_history: say of rows that were worked without a task that they have lost their vector: nothing else is left to
-- tell of it. History is a ring of @buckets partitions, each for @span seconds of this server's clock.
-- Parameters: arrays of one length, one element per row.
-- Rows: none. Locks: the new rows. Index: none; it only adds.
INSERT INTO embedsidecar.history (bucket, pipeline_id, row_key, outcome, attempt, worker_id, committed_at, lsn, took_ms,
    generation)
SELECT floor(extract(epoch FROM now()) / @span::integer)::bigint % @buckets::integer, @pipeline_id, i.row_key,
    i.outcome, 1, @worker::bigint, i.committed_at, i.lsn, @took::integer, @generation::integer
FROM   unnest(@row_keys::text[], @outcomes::text[], @committed_ats::timestamptz[], @lsns::pg_lsn[]) AS i (row_key,
    outcome, committed_at, lsn);
