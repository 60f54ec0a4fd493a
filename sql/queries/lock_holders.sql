-- lock_holders: the other sessions and prepared transactions that hold a lock on one of some tables.
-- @tables: their numbers; NULL: any table, with a lock that blocks writers or readers.
-- Rows: a description each, ten at most. Locks: none.
SELECT DISTINCT concat_ws(' ', CASE WHEN l.pid IS NULL THEN 'prepared transaction ' || quote_literal(x.gid)
                               ELSE 'pid ' || l.pid END,
                          'of role', coalesce(a.usename, x.owner), nullif(a.application_name, ''), a.state,
                          'holds', l.mode, 'on', l.relation::regclass,
                          'since ' || to_char(coalesce(a.xact_start, x.prepared), 'YYYY-MM-DD HH24:MI:SS TZH'))
FROM   pg_locks AS l LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
       LEFT JOIN (SELECT p.gid, p.owner, p.prepared, i.virtualtransaction FROM pg_prepared_xacts AS p
                  JOIN pg_locks AS i ON i.transactionid = p.transaction) AS x
       ON l.pid IS NULL AND x.virtualtransaction = l.virtualtransaction
WHERE  CASE WHEN @tables::oid[] IS NULL
            THEN l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
            ELSE l.relation = ANY (@tables) END
       AND l.granted AND l.relation IS NOT NULL AND l.pid IS DISTINCT FROM pg_backend_pid()
       AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
LIMIT  10;
