-- vectors_indexed: whether there is an index over the vectors of a table, or of one of its partitions, that finds the
-- nearest without all of them.
-- @table: its name as in a statement.
-- Rows: one. Locks: none.
SELECT EXISTS (SELECT FROM pg_index AS i JOIN pg_class AS x ON x.oid = i.indexrelid JOIN pg_am AS m ON m.oid = x.relam
               WHERE  i.indisvalid AND m.amname IN ('hnsw', 'ivfflat', 'diskann', 'vchordrq')
                      AND (i.indrelid = @table::regclass
                           OR i.indrelid IN (SELECT t.relid FROM pg_partition_tree(@table::regclass) AS t)));
