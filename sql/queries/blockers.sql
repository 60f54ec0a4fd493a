-- blockers: the open transactions of the whole cluster that have an id, oldest first. The creation of a slot waits for
-- them, and so does a scan that was requested while they were open.
-- @before: only those with an id below this one, such as a scan's barrier; NULL: all.
-- Rows: at most @most. Locks: none.
SELECT pid, gid, database, role, application, state, age_seconds, words FROM embedsidecar.blockers(@before::xid8)
    LIMIT @most;
