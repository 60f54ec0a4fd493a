CREATE OR REPLACE VIEW embedsidecar.tasks AS
SELECT p.name AS pipeline, t.row_key,
       CASE WHEN t.state <> 'todo' OR h.leased_until IS NULL THEN t.state::text
           WHEN h.leased_until >= now() THEN 'in_progress' ELSE 'stale' END AS state,
       (ARRAY['low', 'normal', 'high', 'urgent'])[t.lane + 1] AS priority, t.attempt::integer AS attempt,
       t.error_class, t.error_code, t.error_message, t.committed_at, t.enqueued_at AS created_at,
       t.due_at AS scheduled_at,
       CASE WHEN h.leased_until IS NOT NULL AND t.state = 'todo' THEN h.instance END AS leased_by,
       CASE WHEN t.state = 'todo' THEN h.leased_until END AS leased_until, t.first_lsn, t.last_lsn, t.task_id,
       CASE WHEN t.state = 'todo' AND h.leased_until IS NOT NULL THEN h.started_at ELSE t.started_at END AS started_at,
       CASE WHEN t.state <> 'todo' OR h.leased_until IS NULL THEN t.finished_at END AS finished_at,
       p.labels
FROM   embedsidecar.task AS t
       JOIN embedsidecar.pipeline AS p ON p.pipeline_id = t.pipeline_id
       LEFT JOIN (SELECT DISTINCT ON (u.task_id) u.task_id, l.leased_until, l.started_at,
           coalesce(w.instance, 'worker ' || l.worker_id) AS instance
                  FROM   embedsidecar.lease AS l
                         JOIN embedsidecar.pipeline AS q ON q.pipeline_id = l.pipeline_id AND q.lease_epoch = l.epoch
                         CROSS JOIN LATERAL unnest(l.task_ids) AS u (task_id)
                         LEFT JOIN embedsidecar.worker AS w ON w.worker_id = l.worker_id
                  ORDER BY u.task_id, l.leased_until DESC) AS h ON h.task_id = t.task_id;
COMMENT ON VIEW embedsidecar.tasks IS
    'Rows that wait, are being embedded, failed or were cancelled: at most one task per pipeline and row. Without '
    'their text.';
COMMENT ON COLUMN embedsidecar.tasks.pipeline IS 'The pipeline''s name.';
COMMENT ON COLUMN embedsidecar.tasks.row_key IS
    'The row''s key as PostgreSQL prints it; several columns are joined by | with \ and | escaped by \.';
COMMENT ON COLUMN embedsidecar.tasks.state IS
    'todo, in_progress, stale (in progress with an expired lease), retrying, failed (a dead letter) or cancelled.';
COMMENT ON COLUMN embedsidecar.tasks.priority IS 'low, normal, high or urgent.';
COMMENT ON COLUMN embedsidecar.tasks.attempt IS 'Attempts that failed because of the row itself.';
COMMENT ON COLUMN embedsidecar.tasks.error_class IS 'The class of the last attempt''s error; NULL: none.';
COMMENT ON COLUMN embedsidecar.tasks.error_code IS 'The code of the error.';
COMMENT ON COLUMN embedsidecar.tasks.error_message IS 'The error message, without text of the row.';
COMMENT ON COLUMN embedsidecar.tasks.committed_at IS
    'When its oldest open change was committed, or the row was queued without a change.';
COMMENT ON COLUMN embedsidecar.tasks.created_at IS 'When the task was created.';
COMMENT ON COLUMN embedsidecar.tasks.scheduled_at IS
    'When it is or was due, if it waits or waited for a retry or a requested time; NULL: it did not wait.';
COMMENT ON COLUMN embedsidecar.tasks.started_at IS
    'When the present or last attempt began; NULL: none did, or its sidecar was lost.';
COMMENT ON COLUMN embedsidecar.tasks.finished_at IS 'When the last attempt ended; NULL: one runs, or none has ended.';
COMMENT ON COLUMN embedsidecar.tasks.leased_by IS 'The sidecar that works on it.';
COMMENT ON COLUMN embedsidecar.tasks.leased_until IS 'When the lease expires unless it is extended.';
COMMENT ON COLUMN embedsidecar.tasks.first_lsn IS 'Its oldest open change; 0/0: not known.';
COMMENT ON COLUMN embedsidecar.tasks.last_lsn IS 'Its newest change.';
COMMENT ON COLUMN embedsidecar.tasks.task_id IS 'Its number.';
COMMENT ON COLUMN embedsidecar.tasks.labels IS 'The labels of the pipeline.';
