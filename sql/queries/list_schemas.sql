-- list_schemas: the user schemas of this database, oldest first, each with those of @tables that it has.
-- Rows: one each. Locks: none. Index: pg_class_relname_nsp_index.
SELECT n.nspname::text AS name, array(
           SELECT c.relname::text FROM pg_class AS c
           WHERE  c.relname = ANY (@tables::text[]::name[]) AND c.relnamespace = n.oid
           AND    c.relkind IN ('r', 'p', 'v', 'm', 'f')) AS tables
FROM   pg_namespace AS n
WHERE  n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'embedsidecar')
ORDER  BY n.oid;
