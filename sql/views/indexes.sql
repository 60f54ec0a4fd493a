CREATE OR REPLACE VIEW embedsidecar.indexes AS
SELECT p.name AS pipeline, n.nspname AS table_schema, c.relname AS table_name, x.relname AS index,
       m.amname AS kind, CASE WHEN i.indexrelid IS NULL THEN 'none' WHEN g.pid IS NOT NULL THEN 'building'
           WHEN NOT i.indisvalid THEN 'invalid' ELSE 'ready' END AS state,
       g.phase, round(100.0 * g.blocks_done / nullif(g.blocks_total, 0), 1)::float8 AS percent,
       CASE WHEN c.reltuples >= 0 THEN c.reltuples::bigint END AS rows, pg_relation_size(x.oid) AS bytes,
       o.opcname AS operator_class, x.reloptions AS options, pg_get_indexdef(x.oid) AS definition
FROM   embedsidecar.pipeline AS p
       JOIN LATERAL (SELECT coalesce(p.destination_column, 'embedding') AS name,
           CASE WHEN p.destination_column IS NOT NULL THEN p.table_oid
           ELSE coalesce((SELECT t.oid FROM pg_class AS t JOIN pg_namespace AS s ON s.oid = t.relnamespace
               WHERE s.nspname = p.destination_schema AND t.relname = p.destination_table), p.destination_oid)
           END AS relation) AS d ON true
       JOIN LATERAL (SELECT t.relid FROM pg_partition_tree(d.relation) AS t WHERE t.isleaf
           UNION SELECT d.relation WHERE NOT EXISTS (SELECT FROM pg_partitioned_table
               WHERE partrelid = d.relation)) AS leaf ON true
       JOIN pg_class AS c ON c.oid = leaf.relid
       JOIN pg_namespace AS n ON n.oid = c.relnamespace
       JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = d.name
       LEFT JOIN (pg_index AS i JOIN pg_class AS x ON x.oid = i.indexrelid
           JOIN pg_am AS m ON m.oid = x.relam AND m.amname NOT IN ('btree', 'hash', 'gin', 'gist', 'spgist', 'brin')
           JOIN pg_opclass AS o ON o.oid = i.indclass[0]) ON i.indrelid = c.oid AND i.indkey[0] = a.attnum
       LEFT JOIN pg_stat_progress_create_index AS g ON g.index_relid = x.oid;
COMMENT ON VIEW embedsidecar.indexes IS
    'The indexes over the vectors of pipelines; one row without an index for a table that has none.';
COMMENT ON COLUMN embedsidecar.indexes.pipeline IS 'The pipeline''s name.';
COMMENT ON COLUMN embedsidecar.indexes.table_schema IS 'The schema of the table that holds the vectors.';
COMMENT ON COLUMN embedsidecar.indexes.table_name IS 'That table; of a partitioned table each partition.';
COMMENT ON COLUMN embedsidecar.indexes.index IS 'The name of the index; NULL: there is none.';
COMMENT ON COLUMN embedsidecar.indexes.kind IS 'hnsw, ivfflat or another access method.';
COMMENT ON COLUMN embedsidecar.indexes.state IS
    'ready, building, invalid (its build was interrupted) or none: each search reads every vector.';
COMMENT ON COLUMN embedsidecar.indexes.phase IS 'The server''s current phase of building it.';
COMMENT ON COLUMN embedsidecar.indexes.percent IS 'The finished share of that phase.';
COMMENT ON COLUMN embedsidecar.indexes.rows IS 'Rows of the table, by the server''s estimate; NULL: not known.';
COMMENT ON COLUMN embedsidecar.indexes.bytes IS 'The size of the index.';
COMMENT ON COLUMN embedsidecar.indexes.operator_class IS 'The distance that it supports.';
COMMENT ON COLUMN embedsidecar.indexes.options IS 'The options that it was built with: m, ef_construction, lists.';
COMMENT ON COLUMN embedsidecar.indexes.definition IS 'The statement that creates it.';
