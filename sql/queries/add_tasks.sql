-- add_tasks: queue rows without a change in the WAL (scan, another spelling of a key). A row with a waiting task keeps
-- it, but that task may be leased by a worker that has already read the row: the row is then processed once more. A
-- dead letter is retried: its row differs from what was written, or is gone. The tasks' transaction has long been
-- visible: 3 is the first normal transaction id. The age of the change is unknown, so it counts as the oldest:
-- first_lsn is 0/0.
-- Parameters: row_keys in any order; a key that occurs twice (two old spellings of one key) counts once. With @scan
-- nothing is added unless this transaction has moved the pipeline's scan (save_scan): another sidecar did the page.
-- Rows: none. Locks: the tasks, until the transaction ends: the stream waits for them, so only the commit may follow.
-- Index: unique key.
INSERT INTO embedsidecar.task AS t (pipeline_id, row_key, lane, xid, first_lsn, last_lsn, committed_at)
SELECT @pipeline_id, k.row_key, @lane, '3'::xid8, '0/0'::pg_lsn, pg_current_wal_flush_lsn(), now()
FROM   (SELECT DISTINCT u.row_key COLLATE "C" AS row_key FROM unnest(@row_keys::text[]) AS u (row_key)) AS k
WHERE  EXISTS (SELECT FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = @pipeline_id)
       AND (NOT @scan::boolean OR EXISTS (SELECT FROM embedsidecar.scan AS s WHERE s.pipeline_id = @pipeline_id
           AND s.xmin = pg_current_xact_id()::xid))
ORDER BY k.row_key
ON CONFLICT (row_key, pipeline_id) DO UPDATE SET
    gen           = t.gen + 1,
    first_lsn     = least(t.first_lsn, excluded.first_lsn),
    next_lsn      = least(t.next_lsn, excluded.first_lsn),
    next_committed_at = coalesce(t.next_committed_at, excluded.committed_at),
    state         = CASE WHEN t.state = 'retrying' THEN t.state ELSE 'todo' END,
    seq           = CASE WHEN t.state IN ('todo', 'retrying') THEN t.seq ELSE excluded.seq END,
    attempt       = CASE WHEN t.state IN ('todo', 'retrying') THEN t.attempt ELSE 0 END,
    losses        = CASE WHEN t.state IN ('todo', 'retrying') THEN t.losses ELSE 0 END,
    lost_leases   = CASE WHEN t.state IN ('todo', 'retrying') THEN t.lost_leases ELSE 0 END,
    error_class   = CASE WHEN t.state = 'retrying' THEN t.error_class END,
    error_code    = CASE WHEN t.state = 'retrying' THEN t.error_code END,
    error_message = CASE WHEN t.state = 'retrying' THEN t.error_message END;
