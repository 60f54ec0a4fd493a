-- note_partition: add an empty mark for a partition that the last read of the catalog did not find: its rows are
-- streamed from now on, and if it is removed before the next read, nothing else would show that they existed. Locked
-- rows are skipped, and recorded later.
-- Rows: the pipelines that are skipped. Locks: pipelines, SKIP LOCKED. Index: pipeline_pkey.
WITH noted AS (
    UPDATE embedsidecar.pipeline AS p
    SET    catalogue = p.catalogue || jsonb_build_object('storage', coalesce(nullif(p.catalogue -> 'storage', 'null'),
               '{}') || jsonb_build_object(@table::oid::text, ''))
    WHERE  p.pipeline_id = ANY (ARRAY(
               SELECT q.pipeline_id FROM embedsidecar.pipeline AS q
               WHERE  q.pipeline_id = ANY (@pipeline_ids)
                      AND NOT coalesce(q.catalogue -> 'storage' ? @table::oid::text, false)
               FOR UPDATE SKIP LOCKED))
    RETURNING p.pipeline_id
)
SELECT p.pipeline_id FROM embedsidecar.pipeline AS p
WHERE  p.pipeline_id = ANY (@pipeline_ids) AND NOT coalesce(p.catalogue -> 'storage' ? @table::oid::text, false)
       AND NOT EXISTS (SELECT FROM noted AS n WHERE n.pipeline_id = p.pipeline_id);
