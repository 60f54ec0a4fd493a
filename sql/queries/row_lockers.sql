-- row_lockers: who holds the transaction @xmax, which is the last to have been at a row.
-- Rows: one, or none: it is over, or several share the lock. Locks: none.
SELECT concat_ws(', ', 'pid ' || a.pid, a.usename, nullif(a.application_name, ''), a.state || ' for '
    || round(extract(epoch FROM now() - a.xact_start)) || ' s') AS who
FROM   pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
WHERE  l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.transactionid = @xmax::text::xid;
