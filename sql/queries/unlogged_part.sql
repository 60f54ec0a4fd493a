-- unlogged_part: a table or one of its partitions that a crash empties, ready for a statement.
-- Rows: one, NULL when there is none. Locks: none.
SELECT min(format('%I.%I', n.nspname, c.relname))
FROM   (SELECT @table::oid AS relid UNION SELECT t.relid FROM pg_partition_tree(@table::oid::regclass) AS t) AS t
       CROSS JOIN LATERAL (SELECT c.* FROM pg_class AS c WHERE c.oid = t.relid OFFSET 0) AS c -- none else is read
       JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE  c.relpersistence <> 'p';
