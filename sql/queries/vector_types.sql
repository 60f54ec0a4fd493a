-- vector_types: pgvector in this database: its schema, its version, and the numbers of its types, 0 for those that this version lacks.
-- Rows: at most one. Locks: none.
SELECT n.nspname::text, e.extversion,
       coalesce(max(t.oid::bigint) FILTER (WHERE t.typname = 'vector'), 0)::oid,
       coalesce(max(t.oid::bigint) FILTER (WHERE t.typname = 'halfvec'), 0)::oid,
       coalesce(max(t.oid::bigint) FILTER (WHERE t.typname = 'sparsevec'), 0)::oid
FROM   pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
       LEFT JOIN pg_type AS t ON t.typnamespace = e.extnamespace
WHERE  e.extname = 'vector'
GROUP BY 1, 2;
