-- error_groups: what goes wrong in pipelines, as embedsidecar.errors shows it: dead letters, and rows that are tried again. The most rows first.
-- Rows: one for each pipeline, state, class and code. Locks: none. Index: task_failed_idx, task_retry_idx.
SELECT p.name AS pipeline, g.state, coalesce(g.error_class, '') AS class, coalesce(g.error_code, '') AS code, g.rows, g.first_committed_at, g.last_committed_at, g.sample_key,
       coalesce((SELECT t.error_message FROM embedsidecar.task AS t WHERE t.pipeline_id = g.pipeline_id AND t.row_key = g.sample_key), '') AS sample_message
FROM  (SELECT t.pipeline_id, t.state::text AS state, t.error_class, t.error_code, count(*) AS rows, min(t.committed_at) AS first_committed_at, max(t.committed_at) AS last_committed_at,
              min(t.row_key) AS sample_key
       FROM   embedsidecar.task AS t WHERE t.state = 'failed' GROUP BY 1, 2, 3, 4
       UNION ALL
       SELECT t.pipeline_id, t.state::text, t.error_class, t.error_code, count(*), min(t.committed_at), max(t.committed_at), min(t.row_key)
       FROM   embedsidecar.task AS t WHERE t.state = 'retrying' GROUP BY 1, 2, 3, 4) AS g
       JOIN embedsidecar.pipeline AS p ON p.pipeline_id = g.pipeline_id
WHERE  p.name = ANY (@pipelines::text[])
ORDER BY g.rows DESC, p.name, g.state, g.error_class, g.error_code;
