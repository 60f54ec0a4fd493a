-- type_schemas: the schemas, other than the server's own, of the types that statements over a table name: those of its
-- key, and pgvector's.
-- @type: the number of the type vector. @key: the columns of the key.
-- Rows: a name each. Locks: none.
SELECT DISTINCT n.nspname::text
FROM   (SELECT @type::oid AS oid UNION SELECT a.atttypid FROM pg_attribute AS a WHERE a.attrelid = @table
           AND a.attname = ANY (@key)) AS named
       JOIN pg_type AS t ON t.oid = named.oid JOIN pg_namespace AS n ON n.oid = t.typnamespace
WHERE  n.nspname <> 'pg_catalog'
ORDER BY 1;
