-- slow_setup: what may delay a statement of a set-up: the event triggers that run in it, and the sessions that hold
-- what it wants to lock.
-- Rows: one, "" if it is neither. Locks: none.
SELECT concat_ws('; ',
           (SELECT 'event triggers, which run in each statement: '
                   || string_agg(quote_ident(e.evtname), ', ' ORDER BY e.evtname)
            FROM   pg_event_trigger AS e WHERE e.evtenabled IN ('O', 'A') AND e.evtevent <> 'login'),
           (SELECT 'locks of pid ' || string_agg(DISTINCT b.pid::text, ', ')
            FROM   pg_stat_activity AS a CROSS JOIN LATERAL unnest(pg_blocking_pids(a.pid)) AS b (pid)
            WHERE  a.datname = current_database() AND a.application_name = current_setting('application_name')));
