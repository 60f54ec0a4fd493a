-- vector_indexes: the indexes over the vectors of destinations, of each of their partitions. A search without a filter
-- can use an index without a condition, or one with the condition that every search has. From version 17 on the server
-- drops that condition from a search if the column is NOT NULL, and then cannot use the index. early: no search uses it
-- yet: it was built without CONCURRENTLY over rows that had been changed in place, and a transaction that is older than
-- the index still runs, in any database of the server.
-- @tables: quoted. @columns: the vectors of each. @kinds: of the wanted index. n: which of them it is, from 1. type: of
-- the vectors; extension: where pgvector is. taken: the name of a new index, as in index_targets; another one for each
-- table. hidden: another session builds one that this role may not see.
-- Rows: one for each index, and one for a table without any; none for a missing table. Locks: none.
SELECT v.n, v.type, v.extension, v.oid, v.schema, v.table, v.rows, v.index, v.method, v.operator_class, coalesce(
    (SELECT f.name FROM generate_series(1, 99) AS no
         CROSS JOIN LATERAL (SELECT v.base || coalesce('_' || nullif(no, 1), '') AS name) AS f
     WHERE  to_regclass(format('%I.%I', v.schema, f.name)) IS NULL OFFSET v.place - 1 LIMIT 1), v.base) AS taken,
    v.valid, v.partial, v.early, v.building, v.hidden, v.phase, v.percent
FROM (SELECT w.n::integer, y.typname::text AS type, coalesce((SELECT en.nspname::text FROM pg_extension AS e
       JOIN pg_namespace AS en ON en.oid = e.extnamespace WHERE e.extname = 'vector'), '') AS extension,
    c.oid, n.nspname::text AS schema, c.relname::text AS table,
    CASE WHEN c.reltuples >= 0 THEN c.reltuples::bigint END AS rows,
        coalesce(x.relname::text, '') AS index, coalesce(x.method, '') AS method, coalesce(x.opcname::text,
        '') AS operator_class, k.base,
        dense_rank() OVER (PARTITION BY n.nspname, k.base ORDER BY w.n, c.relname) AS place,
        coalesce(x.indisvalid, false) AS valid, coalesce(x.partial, false) AS partial,
            coalesce(x.early, false) AS early,
        g.pid IS NOT NULL AS building,
        EXISTS (SELECT FROM pg_stat_progress_create_index AS h WHERE h.datname = current_database()
        AND h.relid IS NULL) AS hidden,
        coalesce(g.phase, '') AS phase, round(100.0 * g.blocks_done / nullif(g.blocks_total, 0), 1)::float8 AS percent
FROM   (SELECT u.n, u.col, u.kind, to_regclass(u.name) AS relation
        FROM unnest(@tables::text[], @columns::text[], @kinds::text[]) WITH ORDINALITY AS u (name, col, kind, n)) AS w
       CROSS JOIN LATERAL (SELECT t.relid FROM pg_partition_tree(w.relation) AS t WHERE t.isleaf
        UNION SELECT w.relation::oid WHERE NOT EXISTS (SELECT FROM pg_partitioned_table
        WHERE partrelid = w.relation)) AS leaf
       CROSS JOIN LATERAL (SELECT c.* FROM pg_class AS c WHERE c.oid = leaf.relid OFFSET 0) AS c -- only these are read
       JOIN pg_namespace n ON n.oid = c.relnamespace
       JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = w.col JOIN pg_type AS y ON y.oid = a.atttypid
       CROSS JOIN LATERAL (SELECT CASE WHEN octet_length(left(c.relname, 27) || left(w.col, 20)) <= 47
           THEN left(c.relname, 27) || '_' || left(w.col, 20)
           ELSE substr((repeat('x', 36) || c.relname)::name, 37) || '_'
               || substr((repeat('x', 43) || w.col)::name, 44) END || '_' || w.kind AS base) AS k
       LEFT JOIN LATERAL (SELECT r.oid, r.relname, m.amname::text AS method, o.opcname,
           i.indisvalid, NOT (i.indpred IS NULL
           OR pg_get_expr(i.indpred, i.indrelid) = format('(%I IS NOT NULL)', a.attname)
        AND NOT (a.attnotnull AND current_setting('server_version_num')::int >= 170000)) AS partial, (i.indcheckxmin
            AND age(i.xmin) <= age(pg_snapshot_xmin(pg_current_snapshot())::xid)) AS early
        FROM pg_index i JOIN pg_class r ON r.oid = i.indexrelid JOIN pg_am m ON m.oid = r.relam AND m.amname IN ('hnsw',
        'ivfflat', 'diskann', 'vchordrq')
        JOIN pg_opclass o ON o.oid = i.indclass[0] WHERE i.indrelid = c.oid AND i.indkey[0] = a.attnum) AS x ON true
       LEFT JOIN pg_stat_progress_create_index AS g ON g.index_relid = x.oid) AS v
ORDER BY v.n, v.schema, v.table, v.index;
