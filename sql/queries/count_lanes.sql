-- count_lanes: the number and ages of rows of @pipelines by lane and state, as embedsidecar.lanes shows them.
-- Rows: one for each pipeline, lane and state that has any. Locks: none. Index: none if many are counted; for a few
-- pipelines the index of each state: task_todo_idx, task_retry_idx, task_failed_idx and task_cancelled_idx.
SELECT p.name AS pipeline, (ARRAY['low', 'normal', 'high', 'urgent'])[g.lane + 1] AS priority,
       CASE WHEN g.live THEN 'in_progress' WHEN NOT g.live THEN 'stale' ELSE g.state::text END AS state, g.rows,
       extract(epoch FROM now() - g.oldest)::double precision AS oldest_seconds,
       extract(epoch FROM now() - g.newest)::double precision AS newest_seconds, g.average_ms
FROM  (SELECT t.pipeline_id, t.lane, t.state, h.live, count(*) AS rows, min(t.committed_at) AS oldest,
              max(t.committed_at) AS newest,
              avg(extract(epoch FROM now() - t.committed_at)::double precision) * 1000 AS average_ms
       FROM  (SELECT o.pipeline_id, o.task_id, o.lane, o.state, o.committed_at FROM embedsidecar.task AS o
              WHERE  cardinality(@pipelines::text[]) > 12 AND o.pipeline_id IN (SELECT q.pipeline_id
                  FROM embedsidecar.pipeline AS q WHERE q.name = ANY (@pipelines::text[]))
              UNION ALL
              SELECT q.pipeline_id, o.task_id, o.lane, o.state, o.committed_at
              FROM   embedsidecar.pipeline AS q CROSS JOIN LATERAL (
                  SELECT e.* FROM embedsidecar.task AS e WHERE e.pipeline_id = q.pipeline_id AND e.state = 'todo'
                  UNION ALL
                  SELECT e.* FROM embedsidecar.task AS e WHERE e.pipeline_id = q.pipeline_id AND e.state = 'retrying'
                  UNION ALL
                  SELECT e.* FROM embedsidecar.task AS e WHERE e.pipeline_id = q.pipeline_id AND e.state = 'failed'
                  UNION ALL
                  SELECT e.* FROM embedsidecar.task AS e WHERE e.pipeline_id = q.pipeline_id
                      AND e.state = 'cancelled') AS o
              WHERE  cardinality(@pipelines::text[]) <= 12 AND q.name = ANY (@pipelines::text[])) AS t
              LEFT JOIN (SELECT u.task_id, max(l.leased_until) >= now() AS live
                         FROM   embedsidecar.lease AS l
                                JOIN embedsidecar.pipeline AS q ON q.pipeline_id = l.pipeline_id
                                    AND q.lease_epoch = l.epoch
                                CROSS JOIN LATERAL unnest(l.task_ids) AS u (task_id)
                         GROUP  BY u.task_id) AS h ON h.task_id = t.task_id AND t.state = 'todo'
       GROUP  BY t.pipeline_id, t.lane, t.state, h.live) AS g JOIN embedsidecar.pipeline AS p USING (pipeline_id)
ORDER  BY p.name, g.lane DESC, 3;
