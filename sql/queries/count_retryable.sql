-- count_retryable: how many tasks retry_tasks would open again. @row_keys are those meant; NULL: all.
-- Rows: one. Locks: none. Index: task_failed_idx, task_retry_idx; for both states at once neither fits.
SELECT (SELECT count(*) FROM embedsidecar.task AS t
        WHERE  t.pipeline_id = @pipeline_id AND t.state = 'failed'
               AND (@row_keys::text[] IS NULL OR t.row_key = ANY (@row_keys)))
     + (SELECT count(*) FROM embedsidecar.task AS t
        WHERE  t.pipeline_id = @pipeline_id AND t.state = 'retrying'
               AND (@row_keys::text[] IS NULL OR t.row_key = ANY (@row_keys)));
