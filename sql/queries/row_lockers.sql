-- row_lockers: the session of the transaction @xmax, the last that locked or changed a row.
-- Rows: one, or none: it has ended, or several share the lock. Locks: none.
SELECT concat_ws(', ', 'pid ' || a.pid, a.usename, nullif(a.application_name, ''), a.state || ' for '
    || round(extract(epoch FROM now() - a.xact_start)) || ' s') AS who
FROM   pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
WHERE  l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.transactionid = @xmax::text::xid;
