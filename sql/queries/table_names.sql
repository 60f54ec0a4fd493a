-- table_names: tables that a user may have meant who named a missing one.
-- Rows: SCHEMA.TABLE each, in quotes where SQL needs them, 10,000 at most. Locks: none.
SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname)
FROM   pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE  c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'embedsidecar')
       AND n.nspname !~ '^pg_(toast|temp)'
ORDER BY 1
LIMIT  10000;
