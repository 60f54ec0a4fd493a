CREATE OR REPLACE VIEW embedsidecar.finished_tasks AS
SELECT p.name AS pipeline, h.row_key, h.outcome, h.attempt::integer AS attempt, h.error_code, h.committed_at,
    h.created_at, h.scheduled_at, h.finished_at - make_interval(secs => h.took_ms / 1000.0) AS started_at,
    h.finished_at, w.instance AS worked_by, h.lsn, h.generation
FROM   embedsidecar.history AS h
       JOIN embedsidecar.pipeline AS p ON p.pipeline_id = h.pipeline_id
       LEFT JOIN embedsidecar.worker AS w ON w.worker_id = h.worker_id;
COMMENT ON VIEW embedsidecar.finished_tasks IS
    'Recently finished tasks, as long as the history is kept. A change that was embedded without a task is not here.';
COMMENT ON COLUMN embedsidecar.finished_tasks.pipeline IS 'The pipeline''s name.';
COMMENT ON COLUMN embedsidecar.finished_tasks.row_key IS 'The row''s key, as embedsidecar.tasks shows it.';
COMMENT ON COLUMN embedsidecar.finished_tasks.outcome IS
    'embedded, reused (its vector was known), unchanged, emptied, removed, failed and the like.';
COMMENT ON COLUMN embedsidecar.finished_tasks.attempt IS 'Attempts that failed because of the row itself.';
COMMENT ON COLUMN embedsidecar.finished_tasks.error_code IS 'The code of the error, if the task failed.';
COMMENT ON COLUMN embedsidecar.finished_tasks.committed_at IS 'When the change was committed.';
COMMENT ON COLUMN embedsidecar.finished_tasks.created_at IS 'When the task was created; NULL: there was none.';
COMMENT ON COLUMN embedsidecar.finished_tasks.scheduled_at IS
    'When it was due, if it waited for a retry or a requested time; NULL: it did not wait.';
COMMENT ON COLUMN embedsidecar.finished_tasks.started_at IS 'When the last attempt began.';
COMMENT ON COLUMN embedsidecar.finished_tasks.finished_at IS 'When the last attempt ended.';
COMMENT ON COLUMN embedsidecar.finished_tasks.worked_by IS 'The sidecar that finished it; NULL: no longer known.';
COMMENT ON COLUMN embedsidecar.finished_tasks.lsn IS 'The newest change that it covers.';
COMMENT ON COLUMN embedsidecar.finished_tasks.generation IS 'The pipeline''s generation that the vector was made with.';
