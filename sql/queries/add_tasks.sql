-- add_tasks: ask for a look at rows without a change in the WAL (scan, another spelling of a key). A row whose
-- task waits keeps it; one that is being worked on is looked at once more, and a dead
-- letter gets another chance: its row differs from what was written, or is gone.
-- Their transaction is long visible: 3 is the first normal transaction id there is.
-- Nobody knows how old the change is that such a look may find, so it counts as older than all: first_lsn is 0/0.
-- Parameters: row_keys in any order; one that occurs twice (two old spellings of one key) counts once.
-- Rows: none. Locks: the new tasks. Index: unique key.
INSERT INTO embedsidecar.task AS t (pipeline_id, row_key, lane, xid, first_lsn, last_lsn, committed_at)
SELECT @pipeline_id, k.row_key, @lane, '3'::xid8, '0/0'::pg_lsn, pg_current_wal_flush_lsn(), now()
FROM   (SELECT DISTINCT u.row_key COLLATE "C" AS row_key FROM unnest(@row_keys::text[]) AS u (row_key)) AS k
ORDER BY k.row_key
ON CONFLICT (row_key, pipeline_id) DO UPDATE SET
    gen = t.gen + 1,
    next_lsn      = CASE WHEN t.state = 'in_progress' THEN coalesce(t.next_lsn, excluded.first_lsn) END,
    state         = CASE WHEN t.state = 'in_progress' THEN t.state ELSE 'todo' END,
    seq           = CASE WHEN t.state = 'in_progress' THEN t.seq ELSE excluded.seq END,
    attempt       = 0,
    losses        = CASE WHEN t.state = 'in_progress' THEN t.losses ELSE 0 END,
    lost_leases   = CASE WHEN t.state = 'in_progress' THEN t.lost_leases ELSE 0 END,
    error_class   = NULL, error_code = NULL, error_message = NULL
    WHERE t.state IN ('in_progress', 'failed');
