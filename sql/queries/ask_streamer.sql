-- ask_streamer: have the streamers store their position as soon as it reaches @lsn; NULL: everything that is committed
-- by now. An idle one otherwise saves itself the write. The commit of this statement, which is flushed, is what shows
-- them that the WAL goes so far.
-- Rows: one: the position. Locks: none.
WITH wanted AS MATERIALIZED (SELECT coalesce(@lsn::pg_lsn, pg_current_wal_insert_lsn()) AS lsn)
SELECT lsn, set_config('synchronous_commit', 'on', true), pg_notify(@channel, lsn::text)::text FROM wanted;
