-- find_partitioned: the partitioned tables above a table that the stream announces, each with the pipelines whose last
-- read of the catalog did not find the table among their partitions (note_partition).
-- Rows: the tables above it, and the table itself; none if it is no partition. Locks: none. Index: pg_class.
SELECT a.relid::oid, ARRAY(
           SELECT p.pipeline_id FROM embedsidecar.pipeline AS p
           WHERE  p.table_oid = a.relid AND p.table_oid <> c.oid
                  AND coalesce(jsonb_typeof(p.catalogue -> 'storage'), 'null') IN ('object', 'null')
                  AND NOT coalesce(p.catalogue -> 'storage' ? c.oid::text, false))
FROM   pg_class AS c -- pg_partition_ancestors is empty for a plain table, and fails for a missing one
       CROSS JOIN LATERAL pg_partition_ancestors(c.oid) AS a (relid)
WHERE  c.oid = @table;
