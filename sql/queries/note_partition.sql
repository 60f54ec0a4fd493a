-- note_partition: the partitioned tables above a table that the stream announces. A partition of a pipeline's table
-- that the last look at the catalogue did not find gets an empty mark: its rows are streamed from now on, and if it is
-- gone again before the next look, nothing else would tell that they are. What somebody has locked is not waited for.
-- Rows: the table and those above it; none if it is no partition. Locks: pipelines, SKIP LOCKED. Index: pg_class.
WITH above AS MATERIALIZED ( -- pg_partition_ancestors gives nothing for a plain table, and an error for none at all
    SELECT a.relid::oid AS oid
    FROM   pg_class AS c CROSS JOIN LATERAL pg_partition_ancestors(c.oid) AS a (relid) WHERE c.oid = @table
), marked AS (
    UPDATE embedsidecar.pipeline AS p
    SET    catalogue = p.catalogue || jsonb_build_object('storage', coalesce(nullif(p.catalogue -> 'storage', 'null'),
               '{}') || jsonb_build_object(@table::oid::text, ''))
    WHERE  p.pipeline_id = ANY (ARRAY(
        SELECT q.pipeline_id FROM embedsidecar.pipeline AS q
        WHERE  q.table_oid IN (SELECT a.oid FROM above AS a) AND q.table_oid <> @table
               AND coalesce(jsonb_typeof(q.catalogue -> 'storage'), 'null') IN ('object', 'null')
               AND NOT coalesce(q.catalogue -> 'storage' ? @table::oid::text, false)
        FOR UPDATE SKIP LOCKED))
)
SELECT a.oid FROM above AS a;
