-- mark_partitions: add an empty mark for partitions whose rows a scan is about to compare and that the last read of the
-- catalog did not find (note_partition). The process that was to mark them may have ended, and after the scan nothing
-- else would show that they existed. If a pipeline's row is locked, its partitions wait with the scan (save_scan).
-- Rows: none. Locks: the pipeline, SKIP LOCKED. Index: primary keys.
UPDATE embedsidecar.pipeline AS p
SET    catalogue = p.catalogue || jsonb_build_object('storage', coalesce(nullif(p.catalogue -> 'storage', 'null'), '{}')
           || (SELECT jsonb_object_agg(c.oid::text, '')
               FROM   embedsidecar.scan AS s JOIN pg_class AS c ON c.oid = ANY (s.partitions) AND c.relispartition
               WHERE  s.pipeline_id = p.pipeline_id
                      AND NOT coalesce(p.catalogue -> 'storage' ? c.oid::text, false)))
WHERE  p.pipeline_id = (SELECT q.pipeline_id FROM embedsidecar.pipeline AS q
                        WHERE q.pipeline_id = @pipeline_id FOR NO KEY UPDATE SKIP LOCKED)
       AND EXISTS (SELECT FROM embedsidecar.scan AS s
                       JOIN pg_class AS c ON c.oid = ANY (s.partitions) AND c.relispartition
                   WHERE s.pipeline_id = p.pipeline_id AND NOT coalesce(p.catalogue -> 'storage' ? c.oid::text, false));
