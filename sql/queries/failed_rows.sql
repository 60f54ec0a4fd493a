-- failed_rows: the rows of pipelines that could not be embedded, and those that failed and will be tried again. Dead
-- letters first, the oldest change first.
-- Rows: at most @max per pipeline. Locks: none. Index: task_failed_idx, task_retry_idx; for both states at once neither
-- fits.
SELECT p.name, f.row_key, f.state::text, coalesce(f.error_class, '') AS class, coalesce(f.error_code, '') AS code,
    coalesce(f.error_message, '') AS message,
       f.attempt::integer, extract(epoch FROM now() - f.committed_at)::double precision AS age_seconds,
       CASE WHEN f.state = 'retrying' THEN greatest(extract(epoch FROM f.due_at - now()),
           0)::double precision END AS next_try_seconds
FROM   embedsidecar.pipeline AS p
       CROSS JOIN LATERAL (
           (SELECT t.row_key, t.state, t.error_class, t.error_code, t.error_message, t.attempt, t.committed_at, t.due_at
            FROM   embedsidecar.task AS t WHERE t.pipeline_id = p.pipeline_id AND t.state = 'failed'
            ORDER BY t.committed_at, t.row_key LIMIT @max)
           UNION ALL
           (SELECT t.row_key, t.state, t.error_class, t.error_code, t.error_message, t.attempt, t.committed_at, t.due_at
            FROM   embedsidecar.task AS t WHERE t.pipeline_id = p.pipeline_id AND t.state = 'retrying'
            ORDER BY t.committed_at, t.row_key LIMIT @max)
           ORDER BY state DESC, committed_at, row_key LIMIT @max) AS f
WHERE  p.name = ANY (@pipelines::text[])
ORDER BY p.name, f.state DESC, f.committed_at, f.row_key;
