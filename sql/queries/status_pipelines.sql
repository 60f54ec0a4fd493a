-- status_pipelines: the state of each pipeline, from tables alone, so that it works while no sidecar runs.
-- Counts of tasks are exact up to @cap and end there; rows is the server's estimate unless the caller counts.
-- The table is named as it is called now; replaced_by is set when another one has taken the name it is set up under, dropped when it is gone.
-- aside: changes of them that cannot become tasks, because somebody holds what they need.
-- unrouted: the streamer does not match changes with the pipeline as it is now. scan_barrier: the scan waits for open transactions whose id is
-- below this one; empty: it does not.
-- The view embedsidecar.status says the same to others; our sessions refuse views, so this does not select from it, and a test compares them.
-- Rows: one per pipeline. Locks: none. Index: task_todo_idx, task_retry_idx, task_failed_idx, task_cancelled_idx, primary key of lease.
SELECT p.pipeline_id, p.name, p.slot_name, coalesce(tn.nspname, p.table_schema) AS table_schema, coalesce(tc.relname, p.table_name) AS table_name,
       coalesce((SELECT format('%I.%I', p.table_schema, p.table_name) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                 WHERE n.nspname = p.table_schema AND c.relname = p.table_name AND c.oid <> p.table_oid), '') AS replaced_by, tc.oid IS NULL AS dropped, p.model, p.plugin, p.generation,
       i.enabled AND p.enabled AS enabled, p.status, p.status_detail,
       (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'todo' AND t.pipeline_id = p.pipeline_id
            AND t.task_id NOT IN (SELECT unnest(l.task_ids) FROM embedsidecar.lease AS l WHERE l.pipeline_id = p.pipeline_id AND l.epoch = p.lease_epoch AND l.leased_until >= now())
            LIMIT @cap) AS c) + a.aside AS pending,
       (SELECT coalesce(sum(cardinality(l.task_ids)), 0) FROM embedsidecar.lease AS l WHERE l.pipeline_id = p.pipeline_id AND l.epoch = p.lease_epoch AND l.leased_until >= now()) AS running,
       (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'retrying' AND t.pipeline_id = p.pipeline_id LIMIT @cap) AS c) AS retrying,
       (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'failed' AND t.pipeline_id = p.pipeline_id LIMIT @cap) AS c) AS failed,
       (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'cancelled' AND t.pipeline_id = p.pipeline_id LIMIT @cap) AS c) AS cancelled,
       extract(epoch FROM now() - (SELECT min(t.committed_at) FROM unnest('{0,1,2,3}'::smallint[]) AS n (lane) CROSS JOIN LATERAL (
           (SELECT t.committed_at FROM embedsidecar.task AS t WHERE t.state = 'todo' AND t.pipeline_id = p.pipeline_id AND t.lane = n.lane
            ORDER BY t.seq LIMIT 1000)
           UNION ALL
           (SELECT t.committed_at FROM embedsidecar.task AS t WHERE t.state = 'retrying' AND t.pipeline_id = p.pipeline_id AND t.lane = n.lane
            ORDER BY t.due_at LIMIT 1000)) AS t))::double precision AS oldest_seconds,
       coalesce(s.phase, 'done') AS scan_phase, coalesce(s.reason, '') AS scan_reason, s.finished_at IS NULL AS scan_first,
       coalesce(s.gap AND s.finished_at IS NOT NULL, false) AS scan_gap,
       CASE WHEN s.phase = 'waiting' THEN 0 ELSE coalesce(s.rows_seen, 0) END AS scan_seen, coalesce(s.rows_expected, 0) AS scan_expected,
       coalesce(CASE WHEN s.phase = 'rows' THEN s.rows_seen / greatest(extract(epoch FROM now() - s.started_at), 1) END, 0)::double precision AS scan_rate,
       CASE WHEN s.phase = 'waiting' AND s.barrier > pg_snapshot_xmin(pg_current_snapshot()) THEN s.barrier::text ELSE '' END AS scan_barrier,
       NOT EXISTS (SELECT FROM embedsidecar.route AS r WHERE r.pipeline_id = p.pipeline_id AND r.generation = p.generation) AS unrouted,
       p.tokens_embedded + coalesce(c.tokens_embedded, 0) AS tokens_embedded, p.texts_embedded + coalesce(c.texts_embedded, 0) AS texts_embedded,
       p.texts_reused + coalesce(c.texts_reused, 0) AS texts_reused, p.rows_unchanged + coalesce(c.rows_unchanged, 0) AS rows_unchanged,
       (SELECT greatest(sum(c.reltuples), 0)::bigint FROM pg_class AS c
        WHERE c.relkind = 'r' AND c.oid IN (SELECT relid FROM pg_partition_tree(p.table_oid) UNION SELECT p.table_oid)) AS rows_estimate,
       embedsidecar.is_open(p.active_minutes, p.active_zone, p.open_until) AS is_open, p.active_hours, i.enabled AS switched_on, p.enabled AS itself_enabled, a.aside
FROM   embedsidecar.pipeline AS p
       CROSS JOIN embedsidecar.installation AS i
       CROSS JOIN LATERAL (SELECT count(*) AS aside FROM (SELECT FROM embedsidecar.aside AS a WHERE a.pipeline_id = p.pipeline_id LIMIT @cap) AS c) AS a
       LEFT JOIN embedsidecar.scan AS s ON s.pipeline_id = p.pipeline_id
       LEFT JOIN embedsidecar.spent AS c ON c.pipeline_id = p.pipeline_id
       LEFT JOIN pg_class AS tc ON tc.oid = p.table_oid
       LEFT JOIN pg_namespace AS tn ON tn.oid = tc.relnamespace
ORDER BY p.name;
