-- Rows are grouped by stored values and the groups are named afterwards, which is less work for each row.
CREATE OR REPLACE VIEW embedsidecar.lanes AS
SELECT p.name AS pipeline, (ARRAY['low', 'normal', 'high', 'urgent'])[g.lane + 1] AS priority,
       CASE WHEN g.live THEN 'in_progress' WHEN NOT g.live THEN 'stale' ELSE g.state::text END AS state, g.rows,
       extract(epoch FROM now() - g.oldest)::double precision AS oldest_seconds,
       extract(epoch FROM now() - g.newest)::double precision AS newest_seconds, g.average_ms
FROM  (SELECT t.pipeline_id, t.lane, t.state, h.live, count(*) AS rows, min(t.committed_at) AS oldest,
              max(t.committed_at) AS newest,
              avg(extract(epoch FROM now() - t.committed_at)::double precision) * 1000 AS average_ms
       FROM   embedsidecar.task AS t
              LEFT JOIN (SELECT u.task_id, max(l.leased_until) >= now() AS live
                         FROM   embedsidecar.lease AS l
                                JOIN embedsidecar.pipeline AS q ON q.pipeline_id = l.pipeline_id
                                    AND q.lease_epoch = l.epoch
                                CROSS JOIN LATERAL unnest(l.task_ids) AS u (task_id)
                         GROUP  BY u.task_id) AS h ON h.task_id = t.task_id AND t.state = 'todo'
       GROUP  BY t.pipeline_id, t.lane, t.state, h.live) AS g JOIN embedsidecar.pipeline AS p USING (pipeline_id);
COMMENT ON VIEW embedsidecar.lanes IS
    'How many rows wait, are being embedded, failed or were cancelled, by pipeline, lane and state, with their ages. '
    'The view counts all of them.';
COMMENT ON COLUMN embedsidecar.lanes.pipeline IS 'The pipeline''s name.';
COMMENT ON COLUMN embedsidecar.lanes.priority IS 'The lane: low, normal, high or urgent.';
COMMENT ON COLUMN embedsidecar.lanes.state IS 'todo, in_progress, stale, retrying, failed or cancelled.';
COMMENT ON COLUMN embedsidecar.lanes.rows IS 'Number of rows.';
COMMENT ON COLUMN embedsidecar.lanes.oldest_seconds IS 'Age of the oldest change among them.';
COMMENT ON COLUMN embedsidecar.lanes.newest_seconds IS 'Age of the newest.';
COMMENT ON COLUMN embedsidecar.lanes.average_ms IS 'Average age of all of them, in milliseconds.';
