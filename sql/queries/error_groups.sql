-- error_groups: what goes wrong in pipelines, as embedsidecar.errors shows it: dead letters, and rows that are tried
-- again. The most rows first. Of a pipeline and state @cap rows are read at most; NULL: all of them.
-- Rows: one for each pipeline, state, class and code. Locks: none. Index: task_failed_idx, task_retry_idx.
SELECT p.name AS pipeline, g.state, coalesce(g.error_class, '') AS class, coalesce(g.error_code, '') AS code, g.rows,
    g.first_committed_at, g.last_committed_at, g.sample_key,
       coalesce((SELECT t.error_message FROM embedsidecar.task AS t WHERE t.pipeline_id = p.pipeline_id
           AND t.row_key = g.sample_key), '') AS sample_message
FROM   embedsidecar.pipeline AS p
       CROSS JOIN LATERAL (
           SELECT 'failed' AS state, t.error_class, t.error_code, count(*) AS rows,
               min(t.committed_at) AS first_committed_at, max(t.committed_at) AS last_committed_at,
                  min(t.row_key) AS sample_key
           FROM   (SELECT t.* FROM embedsidecar.task AS t WHERE t.pipeline_id = p.pipeline_id AND t.state = 'failed'
               LIMIT @cap::bigint) AS t GROUP BY 2, 3
           UNION ALL
           SELECT 'retrying', t.error_class, t.error_code, count(*), min(t.committed_at), max(t.committed_at),
               min(t.row_key)
           FROM   (SELECT t.* FROM embedsidecar.task AS t WHERE t.pipeline_id = p.pipeline_id AND t.state = 'retrying'
               LIMIT @cap::bigint) AS t GROUP BY 2, 3) AS g
WHERE  p.name = ANY (@pipelines::text[])
ORDER BY g.rows DESC, p.name, g.state, g.error_class, g.error_code;
