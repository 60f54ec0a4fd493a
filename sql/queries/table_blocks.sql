-- table_blocks: a table that is not partitioned, or the partitions of one that is, and how many blocks each has.
-- Rows: a table each, its name quoted for a statement. Locks: none, except while a table is measured.
SELECT c.oid, format('%I.%I', n.nspname, c.relname) AS name,
    pg_relation_size(c.oid) / current_setting('block_size')::bigint AS blocks
FROM   (SELECT @table::oid AS relid UNION SELECT t.relid FROM pg_partition_tree(@table::oid::regclass) AS t) AS t
       CROSS JOIN LATERAL (SELECT c.* FROM pg_class AS c WHERE c.oid = t.relid OFFSET 0) AS c -- only these are read
       JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE  c.relkind = 'r'
ORDER BY 2;
