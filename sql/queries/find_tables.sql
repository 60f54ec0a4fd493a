-- find_tables: what the catalog says of tables, and what the current role may do with them. triggers: users' triggers
-- fire on an UPDATE of it, or of a partition. unsent: its replica identity is FULL and it has a generated column, which
-- we do not publish: PostgreSQL 18 then refuses its UPDATEs and DELETEs. unlogged: the table, or one of its partitions,
-- that a crash empties, quoted for a statement. primary: the columns of its primary key. hash_indexed: an index finds
-- every text by its hash.
-- @tables: their numbers. @schemas, @names: more of them by name, arrays of one length.
-- Rows: one for each table that exists. Locks: none.
WITH wanted AS MATERIALIZED (
    SELECT unnest(@tables::oid[]) AS oid
    UNION
    SELECT k.oid FROM unnest(@schemas::text[], @names::text[]) AS w (schema, name)
        JOIN pg_namespace AS m ON m.nspname = w.schema
        JOIN pg_class AS k ON k.relnamespace = m.oid AND k.relname = w.name)
SELECT c.oid, n.nspname::text AS schema, c.relname::text AS name, c.relkind::text AS kind,
    c.relpersistence::text AS persistence,
    c.relreplident::text AS identity, pg_get_userbyid(c.relowner)::text AS owner,
    pg_has_role(c.relowner, 'USAGE') AS owned_by_us,
    c.relhassubclass AND EXISTS (SELECT FROM pg_inherits i JOIN pg_class child ON child.oid = i.inhrelid
        WHERE i.inhparent = c.oid AND NOT child.relispartition) AS children,
    (c.relhastriggers OR c.relhassubclass) AND EXISTS (WITH RECURSIVE tree AS (SELECT c.oid AS relid UNION ALL
            SELECT h.inhrelid FROM tree JOIN pg_inherits h ON h.inhparent = tree.relid)
        SELECT FROM tree CROSS JOIN LATERAL (SELECT FROM pg_trigger AS t WHERE t.tgrelid = tree.relid
            AND NOT t.tgisinternal AND t.tgenabled <> 'D' AND t.tgtype & 16 <> 0 OFFSET 0) AS t) AS triggers,
    current_setting('server_version_num')::integer >= 180000 AND c.relkind = 'r' AND c.relreplident = 'f'
        AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attgenerated <> ''
            AND NOT a.attisdropped) AS unsent,
    row_security_active(c.oid) AS row_security, current_user::text AS reader,
    has_schema_privilege(n.oid, 'USAGE') AS usable,
    coalesce(has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
        AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'), true) AS writable,
    -- A recursive query, because pg_partition_tree locks the partitions.
    coalesce(CASE WHEN c.relkind = 'p' THEN (
            WITH RECURSIVE tree AS (SELECT c.oid AS relid UNION ALL SELECT h.inhrelid FROM tree
                JOIN pg_inherits h ON h.inhparent = tree.relid)
            SELECT min(format('%I.%I', pn.nspname, p.relname)) FROM tree CROSS JOIN LATERAL
                (SELECT p.* FROM pg_class AS p WHERE p.oid = tree.relid OFFSET 0) AS p
                JOIN pg_namespace AS pn ON pn.oid = p.relnamespace WHERE p.relpersistence <> 'p')
        WHEN c.relpersistence <> 'p' THEN format('%I.%I', n.nspname, c.relname) END, '') AS unlogged,
    coalesce((SELECT array_agg(a.attname::text ORDER BY k)
              FROM pg_index AS i CROSS JOIN LATERAL generate_series(0, i.indnkeyatts - 1) AS k
                  JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[k]
              WHERE i.indrelid = c.oid AND i.indisprimary), '{}') AS "primary",
    coalesce((SELECT d.description FROM pg_description AS d -- obj_description looks for pg_class by its name, each time
              WHERE d.objoid = c.oid AND d.classoid = 'pg_class'::regclass AND d.objsubid = 0), '') AS comment,
    EXISTS (SELECT FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
            WHERE i.indrelid = c.oid AND a.attname = 'text_hash' AND i.indisvalid AND i.indpred IS NULL) AS hash_indexed
FROM   wanted AS w CROSS JOIN LATERAL (SELECT c.* FROM pg_class AS c WHERE c.oid = w.oid OFFSET 0) AS c
       JOIN pg_namespace n ON n.oid = c.relnamespace;
