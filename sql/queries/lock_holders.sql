-- lock_holders: the other sessions that hold a lock on one of some tables.
-- @tables: their numbers.
-- Rows: a description each, ten at most. Locks: none.
SELECT DISTINCT concat_ws(' ', 'pid', l.pid, 'of role', a.usename, nullif(a.application_name, ''), a.state,
                          'holds', l.mode, 'on', l.relation::regclass)
FROM   pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
WHERE  l.relation = ANY (@tables) AND l.granted AND l.pid <> pg_backend_pid()
       AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
LIMIT  10;
