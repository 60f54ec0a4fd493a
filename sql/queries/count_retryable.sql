-- count_retryable: how many tasks retry_tasks would open again. @row_keys are those meant; NULL: all.
-- Rows: one. Locks: none. Index: task_failed_idx, task_retry_idx.
SELECT count(*)
FROM   embedsidecar.task
WHERE  pipeline_id = @pipeline_id AND state IN ('failed', 'retrying')
       AND (@row_keys::text[] IS NULL OR row_key = ANY (@row_keys));
