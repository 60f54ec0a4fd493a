-- partition_family: a table, the partitioned tables that it is a partition of, and its own partitions.
-- Rows: a number each. Locks: none.
SELECT relid::oid FROM pg_partition_ancestors(@table::oid::regclass)
UNION
SELECT relid::oid FROM pg_partition_tree(@table::oid::regclass);
