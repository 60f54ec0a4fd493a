-- failed_rows: the rows of pipelines that could not be embedded, and those that failed and will be tried again. Dead letters first, the
-- oldest change first.
-- Rows: at most @max per pipeline. Locks: none. Index: task_failed_idx; retrying ones by task_due_idx.
SELECT p.name, f.row_key, f.state, f.class, f.code, f.message, f.attempt, f.age_seconds, f.next_try_seconds
FROM   embedsidecar.pipeline AS p
       CROSS JOIN LATERAL (
           SELECT t.row_key, t.state::text AS state, coalesce(t.error_class, '') AS class, coalesce(t.error_code, '') AS code,
                  coalesce(t.error_message, '') AS message, t.attempt::integer AS attempt,
                  extract(epoch FROM now() - t.committed_at)::double precision AS age_seconds,
                  CASE WHEN t.state = 'retrying' THEN greatest(extract(epoch FROM t.due_at - now()), 0)::double precision END AS next_try_seconds
           FROM   embedsidecar.task AS t
           WHERE  t.pipeline_id = p.pipeline_id AND t.state IN ('failed', 'retrying')
           ORDER BY t.state DESC, t.committed_at, t.row_key LIMIT @max) AS f
WHERE  p.name = ANY (@pipelines::text[])
ORDER BY p.name, f.state, f.age_seconds DESC, f.row_key;
