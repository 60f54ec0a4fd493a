-- note_partition: an empty mark for a partition of pipelines' table that the last look at the catalogue did not find:
-- its rows are streamed from now on, and if it is gone again before the next look, nothing else would tell that they
-- are. Locked rows are skipped.
-- Rows: none. Locks: pipelines, SKIP LOCKED. Index: pipeline_pkey.
UPDATE embedsidecar.pipeline AS p
SET    catalogue = p.catalogue || jsonb_build_object('storage', coalesce(nullif(p.catalogue -> 'storage', 'null'), '{}')
           || jsonb_build_object(@table::oid::text, ''))
WHERE  p.pipeline_id = ANY (ARRAY(
           SELECT q.pipeline_id FROM embedsidecar.pipeline AS q
           WHERE  q.pipeline_id = ANY (@pipeline_ids)
                  AND NOT coalesce(q.catalogue -> 'storage' ? @table::oid::text, false)
           FOR UPDATE SKIP LOCKED));
