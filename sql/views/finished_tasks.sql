CREATE OR REPLACE VIEW embedsidecar.finished_tasks AS
SELECT p.name AS pipeline, h.row_key, h.outcome, h.attempt::integer AS attempt, h.error_code, h.committed_at,
    h.created_at, h.scheduled_at, h.finished_at - make_interval(secs => h.took_ms / 1000.0) AS started_at,
    h.finished_at, w.instance AS worked_by, h.lsn, h.generation
FROM   embedsidecar.history AS h
       JOIN embedsidecar.pipeline AS p ON p.pipeline_id = h.pipeline_id
       LEFT JOIN embedsidecar.worker AS w ON w.worker_id = h.worker_id;
COMMENT ON VIEW embedsidecar.finished_tasks IS
    'What became of tasks recently, as long as the history is kept. A change that was embedded at once had no task, '
    'and is not here.';
COMMENT ON COLUMN embedsidecar.finished_tasks.pipeline IS 'Its name.';
COMMENT ON COLUMN embedsidecar.finished_tasks.row_key IS 'The row''s key, as embedsidecar.tasks shows it.';
COMMENT ON COLUMN embedsidecar.finished_tasks.outcome IS
    'embedded, reused (its vector was known), unchanged, emptied, removed, failed and the like.';
COMMENT ON COLUMN embedsidecar.finished_tasks.attempt IS 'Tries that failed because of the row itself.';
COMMENT ON COLUMN embedsidecar.finished_tasks.error_code IS 'Of a task that failed: why.';
COMMENT ON COLUMN embedsidecar.finished_tasks.committed_at IS 'When the change was committed.';
COMMENT ON COLUMN embedsidecar.finished_tasks.created_at IS 'When the task was made; NULL: there was none.';
COMMENT ON COLUMN embedsidecar.finished_tasks.scheduled_at IS
    'When it was due, if it waited for a time: for another try, or as someone asked; NULL: at once.';
COMMENT ON COLUMN embedsidecar.finished_tasks.started_at IS 'When the last try began.';
COMMENT ON COLUMN embedsidecar.finished_tasks.finished_at IS 'When it ended.';
COMMENT ON COLUMN embedsidecar.finished_tasks.worked_by IS 'The sidecar that did it; NULL: it is forgotten.';
COMMENT ON COLUMN embedsidecar.finished_tasks.lsn IS 'The newest change that it stands for.';
COMMENT ON COLUMN embedsidecar.finished_tasks.generation IS 'Of the pipeline: what the vector was made with.';
