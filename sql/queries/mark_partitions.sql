-- mark_partitions: an empty mark for the partitions whose rows a scan is about to compare, of those that the last look
-- at the catalogue did not find (note_partition): what was to mark them may have ended, and once the scan has ended
-- nothing else would tell that they were there. One whose pipeline is locked waits with the scan (save_scan).
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
