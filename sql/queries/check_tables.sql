-- check_tables: what users of source tables may notice: the replica identity, the triggers that fire when a column is
-- written, and roles besides the current one and @streamer that may replicate but not read the table. @columns: the
-- column that vectors of each of @tables go to; '': none of its own.
-- Rows: one for each table that exists. Locks: none.
SELECT w.oid, w.col AS column, c.relreplident::text AS identity,
       coalesce((SELECT array_agg(t.tgname::text ORDER BY t.tgname) FROM pg_trigger AS t
           WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A') AND t.tgtype & 16 <> 0
           AND (cardinality(t.tgattr::int2[]) = 0 OR (SELECT a.attnum FROM pg_attribute AS a WHERE a.attrelid = c.oid
           AND a.attname = w.col) = ANY (t.tgattr::int2[]))), '{}') AS triggers,
       coalesce((SELECT array_agg(r.rolname::text ORDER BY r.rolname) FROM pg_roles AS r
           WHERE r.rolreplication AND NOT r.rolsuper AND r.rolname NOT IN (current_user, @streamer)
           AND NOT has_table_privilege(r.oid, c.oid, 'SELECT')), '{}') AS readers
FROM   unnest(@tables::oid[], @columns::text[]) AS w (oid, col)
       CROSS JOIN LATERAL (SELECT c.oid, c.relreplident FROM pg_class AS c WHERE c.oid = w.oid OFFSET 0) AS c;
