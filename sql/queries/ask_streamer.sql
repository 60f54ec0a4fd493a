-- ask_streamer: have the streamers store their position as soon as it reaches @lsn; NULL: everything that is committed
-- by now. An idle one otherwise saves itself the write. The commit of this statement, which is flushed, is what shows
-- them that the WAL goes so far. A sidecar that has left a quiet database is called back, for as long as it takes to be
-- heard. A queue of notifications that is full would fail it: then call() sends a message.
-- Rows: one: the position. Locks: none.
WITH wanted AS MATERIALIZED (SELECT coalesce(@lsn::pg_lsn, pg_current_wal_insert_lsn()) AS lsn)
SELECT lsn, set_config('synchronous_commit', 'on', true), concat(CASE WHEN pg_notification_queue_usage() < 0.5
       THEN pg_notify(@channel, lsn::text) END,
       CASE WHEN embedsidecar.call() THEN pg_sleep(1.2) END) FROM wanted;
