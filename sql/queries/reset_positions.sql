-- reset_positions: the queue came from another server, whose transaction ids and WAL positions mean nothing here: those
-- ahead of this server's would wait until it reaches them. Nor is it known any more which rows have not changed since
-- the set-up of their pipeline: none counts as such. The new slot begins at @lsn.
-- Rows: none. Locks: the pipelines, the tasks and scans that lie ahead, all changes set aside. Index: none; this
-- happens once per copy.
WITH pipelines AS (
    UPDATE embedsidecar.pipeline AS p SET set_up = '3:3:'
), tasks AS (
    UPDATE embedsidecar.task AS t
    SET    xid = least(t.xid, pg_current_xact_id()), first_lsn = least(t.first_lsn, @lsn::pg_lsn),
        last_lsn = least(t.last_lsn, @lsn::pg_lsn),
           next_lsn = least(t.next_lsn, @lsn::pg_lsn)
    WHERE  t.xid > pg_current_xact_id() OR t.last_lsn > @lsn::pg_lsn
), aside AS (
    UPDATE embedsidecar.aside AS a
    SET    xid = pg_current_xact_id()::text::bigint & 4294967295, first_lsn = least(a.first_lsn, @lsn::pg_lsn),
        last_lsn = least(a.last_lsn, @lsn::pg_lsn))
UPDATE embedsidecar.scan AS s SET barrier = pg_current_xact_id() WHERE s.barrier > pg_current_xact_id();
