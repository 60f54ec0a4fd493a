-- blockers: the open transactions of the whole cluster that have an id, the oldest first: whom the making of a slot
-- waits for, and a scan that was asked for while they were open.
-- @before: only those with an id below this one, such as a scan's barrier; NULL: all.
-- Rows: at most @most. Locks: none.
SELECT pid, gid, database, role, application, state, age_seconds, words FROM embedsidecar.blockers(@before::xid8)
    LIMIT @most;
