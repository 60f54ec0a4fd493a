CREATE OR REPLACE VIEW embedsidecar.dead_letters AS
SELECT p.name AS pipeline, t.row_key, t.error_class, t.error_code, t.error_message, t.attempt::integer AS attempt,
    t.committed_at, t.enqueued_at AS created_at, t.started_at, t.finished_at
FROM   embedsidecar.task AS t JOIN embedsidecar.pipeline AS p ON p.pipeline_id = t.pipeline_id
WHERE  t.state = 'failed';
COMMENT ON VIEW embedsidecar.dead_letters IS
    'Rows that could not be embedded and are not retried until they change or someone calls '
    'embedsidecar.retry_failed.';
COMMENT ON COLUMN embedsidecar.dead_letters.pipeline IS 'The pipeline''s name.';
COMMENT ON COLUMN embedsidecar.dead_letters.row_key IS 'The row''s key.';
COMMENT ON COLUMN embedsidecar.dead_letters.error_class IS 'The class of the error.';
COMMENT ON COLUMN embedsidecar.dead_letters.error_code IS 'The code of the error.';
COMMENT ON COLUMN embedsidecar.dead_letters.error_message IS 'The error message, without text of the row.';
COMMENT ON COLUMN embedsidecar.dead_letters.attempt IS 'Attempts that failed because of the row itself.';
COMMENT ON COLUMN embedsidecar.dead_letters.committed_at IS 'When the change was committed.';
COMMENT ON COLUMN embedsidecar.dead_letters.created_at IS 'When the task was created.';
COMMENT ON COLUMN embedsidecar.dead_letters.started_at IS 'When the last attempt began.';
COMMENT ON COLUMN embedsidecar.dead_letters.finished_at IS 'When the last attempt ended.';
