-- queue_holders: the open transactions that may hold what tasks and scans are made of, the oldest first: a row that they have changed, or a table.
-- Those of ours are over in a moment.
-- Rows: at most @most. When a session's transaction began is shown to its own role and to those that may read all statistics. Locks: none.
WITH held AS (
    SELECT DISTINCT l.pid, l.virtualtransaction
    FROM   pg_locks AS l
    WHERE  l.relation IN ('embedsidecar.task'::regclass, 'embedsidecar.scan'::regclass) AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
           AND l.mode IN ('RowExclusiveLock', 'ShareUpdateExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
           AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
)
SELECT a.pid, '' AS gid, coalesce(a.datname::text, '') AS database, coalesce(a.usename::text, '') AS role, coalesce(a.application_name, '') AS application,
       coalesce(a.state, '') AS state, extract(epoch FROM clock_timestamp() - a.xact_start)::double precision AS age_seconds
FROM   held AS h JOIN pg_stat_activity AS a ON a.pid = h.pid
WHERE  a.backend_type IS DISTINCT FROM 'autovacuum worker' AND NOT EXISTS (SELECT FROM embedsidecar.worker AS w WHERE w.session_name <> '' AND w.session_name = a.application_name)
UNION ALL
SELECT 0, p.gid, p.database::text, p.owner::text, '', '', extract(epoch FROM clock_timestamp() - p.prepared)::double precision
FROM   held AS h JOIN pg_prepared_xacts AS p ON h.virtualtransaction LIKE '%/' || p.transaction::text
WHERE  h.pid IS NULL
ORDER BY age_seconds DESC NULLS LAST, pid LIMIT @most;
