-- check_table: what users of a source table may notice: its replica identity, the triggers that fire when @column is
-- written ('' for none of its own), and roles besides the current one and @streamer that may replicate and not read it.
-- Rows: one. Locks: none.
SELECT c.relreplident::text,
        coalesce((SELECT array_agg(t.tgname::text ORDER BY t.tgname) FROM pg_trigger t
            WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A') AND t.tgtype & 16 <> 0
            AND (cardinality(t.tgattr::int2[]) = 0 OR (SELECT a.attnum FROM pg_attribute a WHERE a.attrelid = c.oid
            AND a.attname = @column) = ANY (t.tgattr::int2[]))), '{}'),
        coalesce((SELECT array_agg(r.rolname::text ORDER BY r.rolname) FROM pg_roles r
            WHERE r.rolreplication AND NOT r.rolsuper AND r.rolname NOT IN (current_user, @streamer)
            AND NOT has_table_privilege(r.oid, c.oid, 'SELECT')), '{}')
FROM   pg_class c WHERE c.oid = @table;
