-- unlogged_part: a table or one of its partitions that a crash empties, ready for a statement.
-- Rows: one, NULL when there is none. Locks: none.
SELECT min(format('%I.%I', n.nspname, c.relname))
FROM   pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE  c.relpersistence <> 'p'
    AND (c.oid = @table OR c.oid IN (SELECT relid FROM pg_partition_tree(@table::oid::regclass)));
