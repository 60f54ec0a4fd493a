CREATE OR REPLACE VIEW embedsidecar.errors AS
SELECT p.name AS pipeline, g.state, g.error_class, g.error_code, g.rows, g.first_committed_at, g.last_committed_at,
    g.sample_key,
       (SELECT t.error_message FROM embedsidecar.task AS t WHERE t.row_key = g.sample_key
           AND t.pipeline_id = g.pipeline_id) AS sample_message
FROM  (SELECT t.pipeline_id, t.state::text AS state, t.error_class, t.error_code, count(*) AS rows,
              min(t.committed_at) AS first_committed_at, max(t.committed_at) AS last_committed_at,
                  min(t.row_key) AS sample_key
       FROM   embedsidecar.task AS t WHERE t.state = 'failed' GROUP BY 1, 2, 3, 4
       UNION ALL
       SELECT t.pipeline_id, t.state::text, t.error_class, t.error_code, count(*), min(t.committed_at),
           max(t.committed_at), min(t.row_key)
       FROM   embedsidecar.task AS t WHERE t.state = 'retrying' AND t.error_class IS NOT NULL GROUP BY 1, 2, 3, 4) AS g
       JOIN embedsidecar.pipeline AS p ON p.pipeline_id = g.pipeline_id;
COMMENT ON VIEW embedsidecar.errors IS
    'Failures in groups: dead letters (failed) and rows that are retried (retrying), by pipeline, class and code.';
COMMENT ON COLUMN embedsidecar.errors.pipeline IS 'The pipeline''s name.';
COMMENT ON COLUMN embedsidecar.errors.state IS 'failed or retrying.';
COMMENT ON COLUMN embedsidecar.errors.error_class IS 'The class of the error.';
COMMENT ON COLUMN embedsidecar.errors.error_code IS 'The code of the error.';
COMMENT ON COLUMN embedsidecar.errors.rows IS 'Number of rows with this error.';
COMMENT ON COLUMN embedsidecar.errors.first_committed_at IS 'When the oldest of their changes was committed.';
COMMENT ON COLUMN embedsidecar.errors.last_committed_at IS 'When the newest of their changes was committed.';
COMMENT ON COLUMN embedsidecar.errors.sample_key IS 'The key of one of the rows.';
COMMENT ON COLUMN embedsidecar.errors.sample_message IS 'The error message of that row, without its text.';
