-- read_scan: the next step of a pipeline's scan, if any. routed: the streamer has loaded the pipeline's current
-- definition. Until then changes may be missed, and store_routes requests another scan, so the caller waits a
-- moment. If no sidecar can stream, existing rows do not wait for that. A sidecar that knows only an older generation
-- of the pipeline would compare with the wrong text: it sees no scan. which: the condition that a row is in one of the
-- partitions that are compared (a sole default partition has none), NULL if none of them is a partition any more, or if
-- all rows are compared. life: of the server, for what is read of rows from now on (save_scan).
-- Rows: at most one. Locks: the partitions that are compared, ACCESS SHARE. Index: primary key.
SELECT s.phase, s.reason, s.after_key, s.requested, s.started,
    s.barrier <= pg_snapshot_xmin(pg_current_snapshot()) AS may_start, s.barrier::text AS barrier,
       EXISTS (SELECT FROM embedsidecar.route AS r WHERE r.pipeline_id = s.pipeline_id AND r.generation = @generation)
           OR s.requested_at < now() - interval '15 s' AS routed,
       s.partitions IS NOT NULL OR s.owners IS NOT NULL AS parts, s.lost, s.owners, embedsidecar.server_life() AS life,
       (SELECT string_agg('(' || coalesce(pg_get_partition_constraintdef(c.oid), 'true') || ')', ' OR ')
        FROM   pg_class AS c WHERE c.oid = ANY (s.partitions) AND c.relispartition
            AND s.phase IN ('waiting', 'rows')) AS which
FROM   embedsidecar.scan AS s
WHERE  s.pipeline_id = @pipeline_id AND s.phase <> 'done'
       AND EXISTS (SELECT FROM embedsidecar.pipeline AS p CROSS JOIN embedsidecar.installation AS i
                   WHERE p.pipeline_id = s.pipeline_id AND p.generation = @generation AND p.enabled AND i.enabled
                       AND embedsidecar.is_open(p.active_minutes, p.active_zone, p.open_until)
                       AND embedsidecar.has_budget(p.budget, p.model_budget, p.pipeline_id));
