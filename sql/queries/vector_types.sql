-- vector_types: pgvector in this database: its schema, whether the current role may use the schema, its version, and
-- the numbers of its types, by name.
-- @types: the wanted names; a type that this version lacks has no number.
-- Rows: at most one. Locks: none.
SELECT n.nspname::text, has_schema_privilege(n.oid, 'USAGE'), e.extversion,
    coalesce(jsonb_object_agg(t.typname, t.oid::bigint) FILTER (WHERE t.oid IS NOT NULL), '{}')
FROM   pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
       LEFT JOIN pg_type AS t ON t.typnamespace = e.extnamespace AND t.typname = ANY (@types)
WHERE  e.extname = 'vector'
GROUP BY 1, 2, 3;
