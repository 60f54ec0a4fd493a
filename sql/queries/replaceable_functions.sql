-- replaceable_functions: the names of those functions that are not part of the server, so that a user may replace them.
-- Rows: a name each, schema-qualified and quoted. Locks: none.
SELECT DISTINCT format('%I.%I', n.nspname, p.proname)
FROM   pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
WHERE  p.oid = ANY (@functions) AND p.oid >= 16384
ORDER BY 1;
