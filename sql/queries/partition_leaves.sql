-- partition_leaves: the tables whose changes are changes of a table: its leaf partitions, or itself.
-- Rows: a number each. Locks: none.
SELECT p.relid::oid
FROM   pg_partition_tree(@table::oid::regclass) AS p
WHERE  p.isleaf
UNION ALL
SELECT c.oid FROM pg_class AS c WHERE c.oid = @table AND c.relkind = 'r' AND NOT c.relispartition;
