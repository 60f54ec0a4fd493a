-- job_keys: a page of the rows of a job. A row with a task is processed anyway.
-- Rows: row_key, has_task. Locks: none. Index: batch_item_job_idx, unique key of task.
SELECT i.row_key, (SELECT true FROM embedsidecar.task AS t WHERE t.row_key = i.row_key
           AND t.pipeline_id = i.pipeline_id AND t.state IN ('todo', 'retrying') LIMIT 1) IS NOT NULL AS has_task
FROM embedsidecar.batch_item AS i
WHERE  i.job_id = @job_id AND (@after::text IS NULL OR i.row_key > @after::text COLLATE "C")
ORDER BY i.row_key LIMIT @max;
