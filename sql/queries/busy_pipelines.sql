-- busy_pipelines: the pipelines that have a task which is leased or waits for a lease.
-- Rows: a number each, in ascending order. Locks: none. Index: task_todo_idx, its first entry of each.
SELECT p.pipeline_id FROM embedsidecar.pipeline AS p
WHERE  (SELECT t.seq FROM embedsidecar.task AS t WHERE t.state = 'todo' AND t.pipeline_id = p.pipeline_id
        ORDER BY t.lane, t.seq LIMIT 1) IS NOT NULL
ORDER BY p.pipeline_id;
