-- It reads with the rights of its owner. Counts of tasks are exact up to 100,000 and end there.
CREATE OR REPLACE VIEW embedsidecar.status AS
SELECT p.pipeline_id, p.name AS pipeline, p.slot_name, coalesce(tn.nspname, p.table_schema) AS table_schema, coalesce(tc.relname, p.table_name) AS table_name,
       p.model, p.plugin, p.generation, i.enabled AND p.enabled AS enabled, p.status, p.status_detail,
       (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'todo' AND t.pipeline_id = p.pipeline_id
            AND t.task_id NOT IN (SELECT unnest(l.task_ids) FROM embedsidecar.lease AS l WHERE l.pipeline_id = p.pipeline_id AND l.epoch = p.lease_epoch AND l.leased_until >= now())
            LIMIT 100000) AS c)
       + embedsidecar.set_aside(p.pipeline_id) AS pending,
       (SELECT coalesce(sum(cardinality(l.task_ids)), 0) FROM embedsidecar.lease AS l WHERE l.pipeline_id = p.pipeline_id AND l.epoch = p.lease_epoch AND l.leased_until >= now()) AS running,
       (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'retrying' AND t.pipeline_id = p.pipeline_id LIMIT 100000) AS c) AS retrying,
       (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'failed' AND t.pipeline_id = p.pipeline_id LIMIT 100000) AS c) AS failed,
       (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'cancelled' AND t.pipeline_id = p.pipeline_id LIMIT 100000) AS c) AS cancelled,
       extract(epoch FROM now() - (SELECT min(t.committed_at) FROM unnest('{0,1,2,3}'::smallint[]) AS n (lane) CROSS JOIN LATERAL (
           (SELECT t.committed_at FROM embedsidecar.task AS t WHERE t.state = 'todo' AND t.pipeline_id = p.pipeline_id AND t.lane = n.lane
            ORDER BY t.seq LIMIT 1000)
           UNION ALL
           (SELECT t.committed_at FROM embedsidecar.task AS t WHERE t.state = 'retrying' AND t.pipeline_id = p.pipeline_id AND t.lane = n.lane
            ORDER BY t.due_at LIMIT 1000)) AS t))::double precision AS oldest_seconds,
       coalesce(s.phase, 'done') AS scan_phase,
       NOT EXISTS (SELECT FROM embedsidecar.route AS r WHERE r.pipeline_id = p.pipeline_id AND r.generation = p.generation) AS unrouted,
       EXISTS (SELECT FROM embedsidecar.worker AS w WHERE w.slot_name = p.slot_name AND w.last_seen_at > now() - interval '5 minutes'
               AND (w.session_name = '' OR EXISTS (SELECT FROM pg_stat_activity AS a
                    WHERE a.datname = current_database() AND a.application_name = w.session_name AND a.pid <> pg_backend_pid()))) AS sidecar_runs,
       p.tokens_embedded + coalesce(c.tokens_embedded, 0) AS tokens_embedded,
       (SELECT greatest(sum(c.reltuples), 0)::bigint FROM pg_class AS c
        WHERE c.relkind = 'r' AND c.oid IN (SELECT t.relid FROM pg_partition_tree(p.table_oid) AS t UNION SELECT p.table_oid)) AS rows_estimate,
       embedsidecar.is_open(p.active_minutes, p.active_zone, p.open_until) AS is_open, p.active_hours
FROM   embedsidecar.pipeline AS p
       CROSS JOIN embedsidecar.installation AS i
       LEFT JOIN embedsidecar.scan AS s ON s.pipeline_id = p.pipeline_id
       LEFT JOIN embedsidecar.spent AS c ON c.pipeline_id = p.pipeline_id
       LEFT JOIN pg_class AS tc ON tc.oid = p.table_oid
       LEFT JOIN pg_namespace AS tn ON tn.oid = tc.relnamespace;
COMMENT ON VIEW embedsidecar.status IS 'One row per pipeline: the facts of which embedsidecar status makes its word for the state. Counts are exact up to 100,000 and end there; no table of yours is counted.';
COMMENT ON COLUMN embedsidecar.status.pipeline_id IS 'Its number.';
COMMENT ON COLUMN embedsidecar.status.pipeline IS 'Its name.';
COMMENT ON COLUMN embedsidecar.status.slot_name IS 'The replication slot that its changes come from.';
COMMENT ON COLUMN embedsidecar.status.table_schema IS 'Schema of the source table, as it is called now.';
COMMENT ON COLUMN embedsidecar.status.table_name IS 'The source table, as it is called now.';
COMMENT ON COLUMN embedsidecar.status.model IS 'What embeds.';
COMMENT ON COLUMN embedsidecar.status.plugin IS 'The program that runs the model.';
COMMENT ON COLUMN embedsidecar.status.generation IS 'Raised by each change of what vectors are made with.';
COMMENT ON COLUMN embedsidecar.status.enabled IS 'Neither it nor all of them are paused.';
COMMENT ON COLUMN embedsidecar.status.status IS 'Whether it fits its table, as was last found: active, missing, misconfigured or unpublished.';
COMMENT ON COLUMN embedsidecar.status.status_detail IS 'Why it is not active, and what to do.';
COMMENT ON COLUMN embedsidecar.status.pending IS 'Rows that wait to be embedded.';
COMMENT ON COLUMN embedsidecar.status.running IS 'Rows that are being embedded.';
COMMENT ON COLUMN embedsidecar.status.retrying IS 'Rows that failed and are tried again by themselves.';
COMMENT ON COLUMN embedsidecar.status.failed IS 'Dead letters: rows that could not be embedded.';
COMMENT ON COLUMN embedsidecar.status.cancelled IS 'Rows that somebody has taken out of the queue.';
COMMENT ON COLUMN embedsidecar.status.oldest_seconds IS 'Age of the oldest change that waits; NULL: none does.';
COMMENT ON COLUMN embedsidecar.status.scan_phase IS 'waiting, rows, orphans or done: see progress.';
COMMENT ON COLUMN embedsidecar.status.unrouted IS 'The streamer does not know the pipeline yet as it is now.';
COMMENT ON COLUMN embedsidecar.status.sidecar_runs IS 'A sidecar for its slot was seen of late.';
COMMENT ON COLUMN embedsidecar.status.tokens_embedded IS 'Tokens that the embedder has seen for it.';
COMMENT ON COLUMN embedsidecar.status.rows_estimate IS 'Rows of the source table by the server''s own estimate.';
COMMENT ON COLUMN embedsidecar.status.is_open IS 'It is within its hours, or somebody has it work all the same.';
COMMENT ON COLUMN embedsidecar.status.active_hours IS 'When it works: windows, or manual; empty: always.';
