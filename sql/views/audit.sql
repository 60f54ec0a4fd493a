CREATE OR REPLACE VIEW embedsidecar.audit AS
SELECT a.audit_id, a.acted_at, CASE WHEN NOT a.open THEN a.finished_at END AS finished_at,
    a.role_name AS role, a.said_by, a.client_addr, a.application, a.action,
    a.pipeline, a.arguments - 'pipeline_id' AS arguments,
       a.result, a.changed,
       coalesce((SELECT p.labels FROM embedsidecar.pipeline AS p WHERE p.name = a.pipeline), '{}') AS labels
FROM   embedsidecar.audit_log AS a;
COMMENT ON VIEW embedsidecar.audit IS
    'Who had what done, by the command line or by SQL: the newest 100,000 actions of each role, for 400 days. A dry '
    'run is none.';
COMMENT ON COLUMN embedsidecar.audit.audit_id IS 'Its number; also continues of a further portion.';
COMMENT ON COLUMN embedsidecar.audit.acted_at IS 'When it began.';
COMMENT ON COLUMN embedsidecar.audit.finished_at IS
    'When its last portion was done, or the job ended; NULL: the job is under way.';
COMMENT ON COLUMN embedsidecar.audit.role IS 'The role that logged in.';
COMMENT ON COLUMN embedsidecar.audit.said_by IS 'Who the program says it was asked by; no one proves it.';
COMMENT ON COLUMN embedsidecar.audit.client_addr IS 'Where from; NULL: by a socket of the machine.';
COMMENT ON COLUMN embedsidecar.audit.application IS 'application_name of the session.';
COMMENT ON COLUMN embedsidecar.audit.action IS
    'pause, resume, retry, requeue, cancel, discard, reembed, backfill, set_priority, prioritise, notify, reload and '
    'the like; or a job: scan, bulk or model_change.';
COMMENT ON COLUMN embedsidecar.audit.pipeline IS 'Its name then; NULL: all.';
COMMENT ON COLUMN embedsidecar.audit.arguments IS
    'What was asked for; of the keys the first hundred, and how many were given.';
COMMENT ON COLUMN embedsidecar.audit.result IS 'What came of it; of a job, at which stage it is or how it ended.';
COMMENT ON COLUMN embedsidecar.audit.changed IS 'How many rows.';
COMMENT ON COLUMN embedsidecar.audit.labels IS 'Names and values that the pipeline has now.';
