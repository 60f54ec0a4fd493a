-- text_tables: the tables whose rows may hold text, largest first: candidates for a user without a configuration.
-- Columns of the primary key do not count as text, nor do those that the role may not read. named: only this table;
-- null: all. keyed: the WAL can identify its rows. rows: the server's estimate. unreadable: the role may read no
-- column.
-- Rows: one for each table, 50 at most. Locks: none that block others (the size of a table takes ACCESS SHARE).
SELECT c.oid, n.nspname::text AS schema, c.relname::text AS name, t.columns, s.rows,
       c.relreplident IN ('i', 'f') OR EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid
           AND i.indisprimary) AS keyed, NOT has_any_column_privilege(c.oid, 'SELECT') AS unreadable
FROM   pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
       CROSS JOIN LATERAL (
           SELECT coalesce(array_agg(a.attname::text ORDER BY a.attnum), '{}') AS columns
           FROM   pg_attribute AS a JOIN pg_type AS y ON y.oid = a.atttypid
           WHERE  a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND y.typcategory = 'S'
                  AND (y.oid IN ('text'::regtype, 'varchar'::regtype, 'bpchar'::regtype) OR y.typname = 'citext')
                  AND has_column_privilege(c.oid, a.attnum, 'SELECT')
                  AND NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisprimary
                      AND a.attnum = ANY (i.indkey))) AS t
       CROSS JOIN LATERAL (
           SELECT coalesce(greatest(sum(l.reltuples), 0), 0)::bigint AS rows,
               coalesce(sum(pg_table_size(l.oid)), 0) AS bytes
           FROM   pg_class AS l
           WHERE  l.relkind = 'r' AND l.oid IN (SELECT relid FROM pg_partition_tree(c.oid) UNION SELECT c.oid)) AS s
WHERE  CASE WHEN @named::oid IS NULL
            THEN c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'
                AND n.nspname NOT IN ('information_schema', 'embedsidecar')
                 AND n.nspname !~ '^pg_' AND has_schema_privilege(n.oid, 'USAGE') AND NOT row_security_active(c.oid)
                 AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid
                     AND d.deptype = 'e')
            ELSE c.oid = @named::oid END
ORDER  BY s.bytes DESC, n.nspname, c.relname
LIMIT  50;
