-- event_triggers: the event triggers that run in statements of a set-up, and their functions.
-- Rows: one each. Locks: none.
SELECT quote_ident(e.evtname) AS name, f.proname::text AS function
FROM   pg_event_trigger AS e JOIN pg_proc AS f ON f.oid = e.evtfoid
WHERE  e.evtenabled IN ('O', 'A') AND e.evtevent <> 'login'
ORDER BY 1;
