-- table_leaves: the partitions that hold the rows of a table, and the columns by which the WAL identifies their rows.
-- unsent: as in find_tables.
-- Rows: one for each, by name. Locks: none.
SELECT n.nspname::text AS schema, c.relname::text AS name, c.relkind::text AS kind,
    c.relpersistence::text AS persistence,
    c.relreplident::text AS identity,
    coalesce((SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid
    AND a.attnum = ANY (i.indkey::int2[])
        WHERE i.indrelid = c.oid AND i.indisunique AND i.indimmediate AND i.indisvalid
        AND CASE WHEN c.relreplident = 'i' THEN i.indisreplident ELSE c.relreplident = 'd' AND i.indisprimary END),
        '{}') AS key,
    current_setting('server_version_num')::integer >= 180000 AND c.relreplident = 'f'
        AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attgenerated <> ''
            AND NOT a.attisdropped) AS unsent
FROM   pg_partition_tree(@table::oid::regclass) AS p JOIN pg_class c ON c.oid = p.relid
       JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE  p.isleaf ORDER BY 1, 2;
