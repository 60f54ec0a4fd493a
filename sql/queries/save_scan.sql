-- save_scan: record a step of a scan, unless the scan was moved since it was read, the pipeline has another generation,
-- or the server was restarted and may have lost what was read (hold_lease). A scan of partitions does not begin before
-- they are marked (mark_partitions). The first phase does not end while a batch job is gathered: a sidecar that has not
-- loaded yet that the pipeline has batch jobs would leave its rows behind. @seen counts rows of the source table, so
-- none in the second phase.
-- Rows: none. Locks: the scan row. Index: primary key.
UPDATE embedsidecar.scan AS s
SET    phase = @phase, after_key = @after_key, started = @started,
       rows_seen  = CASE WHEN @begin::boolean THEN 0 ELSE s.rows_seen + @seen END,
       tasks_made = CASE WHEN @begin::boolean THEN 0 ELSE s.tasks_made + @made END,
       rows_expected = CASE WHEN @begin::boolean
           THEN (SELECT coalesce(greatest(sum(c.reltuples), 0), 0)::bigint
                 FROM (SELECT t.relid FROM pg_partition_tree(@table::oid) AS t UNION SELECT @table::oid) AS t
                     CROSS JOIN LATERAL (SELECT c.reltuples FROM pg_class AS c WHERE c.oid = t.relid
                         AND c.relkind = 'r' OFFSET 0) AS c)
           ELSE s.rows_expected END,
       started_at  = CASE WHEN @begin::boolean THEN now() ELSE s.started_at END,
       gap         = s.gap AND @phase <> 'done',
       partitions = CASE WHEN @phase <> 'done' THEN s.partitions END,
       owners = CASE WHEN @phase <> 'done' THEN s.owners END, lost = @phase = 'done' OR s.lost,
       finished_at = CASE WHEN @phase = 'done' THEN now() ELSE s.finished_at END
WHERE  s.pipeline_id = @pipeline_id AND s.phase = @old_phase AND s.after_key IS NOT DISTINCT FROM @old_after_key
       AND s.requested = @old_requested AND s.started = @old_started AND embedsidecar.server_life() = @life::timestamptz
       AND NOT (@old_phase = 'rows' AND @phase <> 'rows' AND EXISTS (SELECT FROM embedsidecar.batch_job AS j
           WHERE j.pipeline_id = s.pipeline_id AND j.state = 'gathering'))
       AND EXISTS (SELECT FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = s.pipeline_id
           AND p.generation = @generation
           AND NOT (@begin::boolean AND p.catalogue IS NOT NULL AND EXISTS (
               SELECT FROM pg_class AS c WHERE c.oid = ANY (s.partitions) AND c.relispartition
                   AND NOT coalesce(p.catalogue -> 'storage' ? c.oid::text, false))));
