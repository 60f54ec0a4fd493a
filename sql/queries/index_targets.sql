-- index_targets: the tables that an index over the vectors of a destination covers: its own, or each of its partitions,
-- and whether an index exists. A search without a filter can use an index without a condition, or one with the
-- condition that every search has. From version 17 on the server drops that condition from a search if the column is
-- NOT NULL, and then cannot use the index.
-- @table: quoted. @operators: the operator class; operator_schema is its schema, '' if the kind has none for the type.
-- @kind: of the wanted index; an index of another kind that init made does not count. broken: what an interrupted build
-- has left. building: a session builds an index of the table, perhaps that one. made: our valid indexes, newest first;
-- made_at: what the comment of the newest says. taken: the name of the next index: that of the broken one; or one that
-- begins with the name of the table, which is cut, and ends with a number if others begin alike. A cut counts bytes if
-- the name would otherwise be too long for the server.
-- Rows: one for each table. Locks: none.
SELECT t.schema, t.name, t.owned, t.valid, t.broken, t.building, t.made, t.made_at, coalesce(t.again,
    (SELECT f.name FROM generate_series(1, 99) AS no
         CROSS JOIN LATERAL (SELECT t.base || coalesce('_' || nullif(no, 1), '') AS name) AS f
     WHERE  to_regclass(format('%I.%I', t.schema, f.name)) IS NULL OFFSET t.place - 1 LIMIT 1), t.base) AS taken,
    t.rows, t.operator_schema
FROM   (SELECT g.*, row_number() OVER (PARTITION BY g.schema, g.base, g.valid ORDER BY g.name) AS place FROM (
    SELECT n.nspname::text AS schema, c.relname::text AS name, pg_has_role(c.relowner,
    'USAGE') AS owned,
        coalesce(bool_or(i.indisvalid AND (m.amname = @kind OR NOT b.name = ANY (k.others))), false) AS valid,
        coalesce(max(format('%I.%I', n.nspname, x.relname)) FILTER (WHERE NOT i.indisvalid AND b.name = k.name),
        '') AS broken,
        EXISTS (SELECT FROM pg_stat_progress_create_index AS g WHERE g.relid = c.oid
            AND g.datname = current_database()) AS building,
        coalesce(array_agg(format('%I.%I', n.nspname, x.relname) ORDER BY x.oid DESC)
            FILTER (WHERE i.indisvalid AND m.amname = @kind AND b.name = k.name), '{}') AS made,
        coalesce((array_agg(obj_description(x.oid, 'pg_class') ORDER BY x.oid DESC)
            FILTER (WHERE i.indisvalid AND m.amname = @kind AND b.name = k.name))[1], '') AS made_at, k.name AS base,
        max(x.relname::text) FILTER (WHERE NOT i.indisvalid AND b.name = k.name) AS again,
        greatest(c.reltuples, 0)::bigint AS rows,
        coalesce((SELECT format('%I', s.nspname) FROM pg_opclass AS p JOIN pg_am AS b ON b.oid = p.opcmethod
                  JOIN pg_namespace AS s ON s.oid = p.opcnamespace
                  WHERE b.amname = @kind AND p.opcname = @operators AND p.opcintype = a.atttypid LIMIT 1),
        '') AS operator_schema
FROM   (SELECT t.relid FROM pg_partition_tree(@table::regclass) AS t WHERE t.isleaf
        UNION SELECT @table::regclass::oid WHERE NOT EXISTS (SELECT FROM pg_partitioned_table
        WHERE partrelid = @table::regclass)) AS leaf
       JOIN pg_class c ON c.oid = leaf.relid JOIN pg_namespace n ON n.oid = c.relnamespace
       JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = @column
       CROSS JOIN LATERAL (SELECT CASE WHEN octet_length(left(c.relname, 27) || left(@column, 20)) <= 47
           THEN left(c.relname, 27) || '_' || left(@column, 20)
           ELSE substr((repeat('x', 36) || c.relname)::name, 37) || '_'
               || substr((repeat('x', 43) || @column)::name, 44) END || '_' AS cut) AS u
       CROSS JOIN LATERAL (SELECT u.cut || @kind AS name, ARRAY(SELECT u.cut || o.kind
               FROM unnest(ARRAY['hnsw', 'ivfflat', 'diskann', 'vchordrq']) AS o (kind)
               WHERE o.kind <> @kind) AS others) AS k
       LEFT JOIN (pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam
    AND m.amname IN ('hnsw', 'ivfflat', 'diskann', 'vchordrq')
        JOIN pg_opclass o ON o.oid = i.indclass[0]) ON i.indrelid = c.oid AND i.indkey[0] = a.attnum
            AND o.opcname = @operators
        AND (i.indpred IS NULL OR pg_get_expr(i.indpred, i.indrelid) = format('(%I IS NOT NULL)', a.attname)
        AND NOT (a.attnotnull AND current_setting('server_version_num')::int >= 170000))
       LEFT JOIN LATERAL (SELECT regexp_replace(x.relname::text, '_[0-9]{1,2}$', '') AS name) AS b ON true
GROUP BY n.nspname, c.oid, c.relname, c.relowner, c.reltuples, k.name, a.atttypid) AS g) AS t ORDER BY 1, 2;
