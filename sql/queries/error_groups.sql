-- error_groups: failures of pipelines, as embedsidecar.errors shows them: dead letters and rows that are retried,
-- largest groups first. Reads at most @cap rows of each pipeline and state.
-- Rows: one for each pipeline, state, class and code. Locks: none. Index: task_failed_idx alone, task_retry_idx.
SELECT p.name AS pipeline, g.state, coalesce(g.error_class, '') AS class, coalesce(g.error_code, '') AS code, g.rows,
    g.first_committed_at, g.last_committed_at, g.sample_key,
       coalesce((SELECT t.error_message FROM embedsidecar.task AS t WHERE t.pipeline_id = p.pipeline_id
           AND t.row_key = g.sample_key), '') AS sample_message,
       sum(g.rows) OVER (PARTITION BY p.pipeline_id, g.state) >= @cap::bigint AS at_least,
       CASE WHEN g.due_at IS NOT NULL THEN greatest(extract(epoch FROM g.due_at - now()),
           0)::double precision END AS next_try_seconds
FROM   embedsidecar.pipeline AS p
       CROSS JOIN LATERAL (
           SELECT 'failed' AS state, t.error_class, t.error_code, count(*) AS rows,
               min(t.committed_at) AS first_committed_at, max(t.committed_at) AS last_committed_at,
                  min(t.row_key) AS sample_key, NULL::timestamptz AS due_at
           FROM   (SELECT t.error_class, t.error_code, t.committed_at, t.row_key FROM embedsidecar.task AS t
                   WHERE t.pipeline_id = p.pipeline_id AND t.state = 'failed' LIMIT @cap::bigint) AS t GROUP BY 2, 3
           UNION ALL
           SELECT 'retrying', t.error_class, t.error_code, count(*), min(t.committed_at), max(t.committed_at),
               min(t.row_key), min(t.due_at)
           FROM   (SELECT t.* FROM embedsidecar.task AS t WHERE t.pipeline_id = p.pipeline_id AND t.state = 'retrying'
               AND t.error_class IS NOT NULL -- no row that was scheduled for later
               LIMIT @cap::bigint) AS t GROUP BY 2, 3) AS g
WHERE  p.name = ANY (@pipelines::text[])
ORDER BY g.rows DESC, p.name, g.state, g.error_class, g.error_code;
