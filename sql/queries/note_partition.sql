-- note_partition: an empty mark for a partition of pipelines' table that the last look at the catalogue did not find:
-- its rows are streamed from now on, and if it is gone again before the next look, nothing else would tell that they
-- are. Locked rows are skipped, and noted later.
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
