-- add_tasks: ask for a look at rows without a change in the WAL (scan, another spelling of a key). A row whose
-- task waits keeps it; one that is being worked on is looked at once more.
-- Their transaction is long visible: 3 is the first normal transaction id there is.
-- Nobody knows how old the change is that such a look may find, so it counts as older than all: first_lsn is 0/0.
-- Rows: none. Locks: the new tasks. Index: unique key.
INSERT INTO embedsidecar.task AS t (pipeline_id, row_key, lane, xid, first_lsn, last_lsn, committed_at)
SELECT @pipeline_id, k.row_key, @lane, '3'::xid8, '0/0'::pg_lsn, pg_current_wal_flush_lsn(), now()
FROM   unnest(@row_keys::text[]) AS k (row_key)
ORDER BY k.row_key COLLATE "C"
ON CONFLICT (pipeline_id, row_key) DO UPDATE SET gen = t.gen + 1, next_lsn = coalesce(t.next_lsn, excluded.first_lsn)
    WHERE t.state = 'in_progress';
