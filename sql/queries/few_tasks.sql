-- few_tasks: the numbers of at most @max tasks of each state of each pipeline.
-- Rows: at most four times @max per pipeline. Locks: none. Index: task_todo_idx, task_retry_idx, task_failed_idx,
-- task_cancelled_idx.
SELECT t.task_id
FROM   embedsidecar.pipeline AS p CROSS JOIN LATERAL (
           (SELECT t.task_id FROM embedsidecar.task AS t WHERE t.state = 'todo' AND t.pipeline_id = p.pipeline_id
               LIMIT @max)
           UNION ALL
           (SELECT t.task_id FROM embedsidecar.task AS t WHERE t.state = 'retrying' AND t.pipeline_id = p.pipeline_id
               LIMIT @max)
           UNION ALL
           (SELECT t.task_id FROM embedsidecar.task AS t WHERE t.state = 'failed' AND t.pipeline_id = p.pipeline_id
               LIMIT @max)
           UNION ALL
           (SELECT t.task_id FROM embedsidecar.task AS t WHERE t.state = 'cancelled' AND t.pipeline_id = p.pipeline_id
               LIMIT @max)) AS t
WHERE  p.name = ANY (@pipelines::text[]);
