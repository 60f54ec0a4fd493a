-- vectors_indexed: whether a table, or one of its partitions, has an index for the nearest vectors.
-- @table: its name as in a statement.
-- Rows: one. Locks: none.
SELECT EXISTS (SELECT FROM pg_index AS i JOIN pg_class AS x ON x.oid = i.indexrelid JOIN pg_am AS m ON m.oid = x.relam
               WHERE  i.indisvalid AND m.amname IN ('hnsw', 'ivfflat', 'diskann', 'vchordrq')
                      AND (i.indrelid = @table::regclass
                           OR i.indrelid IN (SELECT t.relid FROM pg_partition_tree(@table::regclass) AS t)));
