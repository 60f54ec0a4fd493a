-- blockers: the open transactions of the whole cluster that have an id, the oldest first: whom the making of a slot waits for, and a scan that was
-- asked for while they were open. What they do is not told.
-- @before: only those with an id below this one, such as a scan's barrier; NULL: all.
-- Rows: at most @most. When a session's transaction began is shown to its own role and to those that may read all statistics. Locks: none.
WITH now AS MATERIALIZED (
    -- pg_locks gives the low half of a transaction id; the high half is that of the nearest whole one to now.
    SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS top
), open AS (
    SELECT l.pid, NULL AS gid, a.datname::text AS database, a.usename::text AS role, a.application_name AS application, a.state,
           extract(epoch FROM clock_timestamp() - a.xact_start) AS age, l.transactionid AS xid
    FROM   pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
    WHERE  l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid <> pg_backend_pid()
    UNION ALL
    SELECT 0, p.gid, p.database::text, p.owner::text, '', '', extract(epoch FROM clock_timestamp() - p.prepared), p.transaction
    FROM   pg_prepared_xacts AS p
), whole AS (
    SELECT o.*, n.top - ((n.top - o.xid::text::bigint + 2147483648) & 4294967295) + 2147483648 AS id FROM open AS o CROSS JOIN now AS n
)
SELECT pid, coalesce(gid, '') AS gid, coalesce(database, '') AS database, coalesce(role, '') AS role, coalesce(application, '') AS application,
       coalesce(state, '') AS state, max(age)::double precision AS age_seconds
FROM   whole
WHERE  @before::xid8 IS NULL OR id < @before::xid8::text::bigint
GROUP BY pid, gid, database, role, application, state
ORDER BY min(id) LIMIT @most;
