-- count_lanes: how many rows of @pipelines there are in each lane and state, and for how long, as embedsidecar.lanes
-- shows them.
-- Rows: one for each pipeline, lane and state that has any. Locks: none. Index: none, it counts all.
SELECT p.name AS pipeline, (ARRAY['low', 'normal', 'high', 'urgent'])[t.lane + 1] AS priority, s.state,
    count(*) AS rows,
       extract(epoch FROM now() - min(t.committed_at))::double precision AS oldest_seconds, extract(epoch
           FROM now() - max(t.committed_at))::double precision AS newest_seconds,
       avg(extract(epoch FROM now() - t.committed_at)::double precision) * 1000 AS average_ms
FROM   embedsidecar.task AS t
       JOIN embedsidecar.pipeline AS p ON p.pipeline_id = t.pipeline_id
       LEFT JOIN (SELECT u.task_id, max(l.leased_until) AS leased_until
                  FROM   embedsidecar.lease AS l
                         JOIN embedsidecar.pipeline AS q ON q.pipeline_id = l.pipeline_id AND q.lease_epoch = l.epoch
                         CROSS JOIN LATERAL unnest(l.task_ids) AS u (task_id)
                  GROUP BY u.task_id) AS h ON h.task_id = t.task_id
       CROSS JOIN LATERAL (SELECT CASE WHEN t.state <> 'todo' OR h.leased_until IS NULL THEN t.state::text
           WHEN h.leased_until >= now() THEN 'in_progress' ELSE 'stale' END AS state) AS s
WHERE  p.name = ANY (@pipelines::text[])
GROUP  BY p.name, t.lane, s.state
ORDER  BY p.name, t.lane DESC, s.state;
