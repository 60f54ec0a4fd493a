-- ask_streamer: make the streamers store their position as soon as it reaches @lsn (NULL: everything committed so far).
-- An idle streamer otherwise delays that write. This statement's flushed commit shows them that the WAL extends so far.
-- A sidecar that has left a quiet database is called back until it has heard it. A full queue of notifications would
-- fail the statement: then call() sends a message.
-- Rows: one: the position. Locks: none.
WITH wanted AS MATERIALIZED (SELECT coalesce(@lsn::pg_lsn, pg_current_wal_insert_lsn()) AS lsn)
SELECT lsn, set_config('synchronous_commit', 'on', true), concat(CASE WHEN pg_notification_queue_usage() < 0.5
       THEN pg_notify(@channel, lsn::text) END,
       CASE WHEN embedsidecar.call() THEN pg_sleep(1.2) END) FROM wanted;
