-- partition_key: the columns that determine in which partition a row of a table is, at any depth. The query walks the
-- tree itself: pg_partition_tree locks the user's partitions.
-- Rows: a name each. Reads only pg_catalog. Locks: none.
WITH RECURSIVE tree AS (
    SELECT @table::oid AS relid
    UNION ALL SELECT h.inhrelid FROM tree AS t JOIN pg_inherits AS h ON h.inhparent = t.relid)
SELECT DISTINCT a.attname::text
FROM   tree AS t JOIN pg_partitioned_table AS p ON p.partrelid = t.relid
       CROSS JOIN LATERAL unnest(p.partattrs::int2[]) AS n (attnum) JOIN pg_attribute AS a ON a.attrelid = t.relid
           AND a.attnum = n.attnum;
