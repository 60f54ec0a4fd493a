CREATE OR REPLACE VIEW embedsidecar.audit AS
SELECT a.audit_id, a.acted_at, CASE WHEN NOT a.open THEN a.finished_at END AS finished_at,
    a.role_name AS role, a.said_by, a.client_addr, a.application, a.action,
    a.pipeline, a.arguments - 'pipeline_id' AS arguments,
       a.result, a.changed,
       coalesce((SELECT p.labels FROM embedsidecar.pipeline AS p WHERE p.name = a.pipeline), '{}') AS labels
FROM   embedsidecar.audit_log AS a;
COMMENT ON VIEW embedsidecar.audit IS
    'Actions by the command line, HTTP or SQL: the newest 100,000 of each role, for 400 days. A dry run is not '
    'recorded.';
COMMENT ON COLUMN embedsidecar.audit.audit_id IS 'Its number; a further portion passes it as continues.';
COMMENT ON COLUMN embedsidecar.audit.acted_at IS 'When it began.';
COMMENT ON COLUMN embedsidecar.audit.finished_at IS
    'When its last portion was done, or the job ended; NULL: the job is under way.';
COMMENT ON COLUMN embedsidecar.audit.role IS 'The role that logged in.';
COMMENT ON COLUMN embedsidecar.audit.said_by IS 'The user that the program names; this is not verified.';
COMMENT ON COLUMN embedsidecar.audit.client_addr IS 'Address of the client; NULL: a socket on the same machine.';
COMMENT ON COLUMN embedsidecar.audit.application IS 'application_name of the session.';
COMMENT ON COLUMN embedsidecar.audit.action IS
    'pause, resume, retry, requeue, cancel, discard, reembed, backfill, set_priority, prioritise, notify, reload and '
    'the like; or a job: scan, bulk or model_change.';
COMMENT ON COLUMN embedsidecar.audit.pipeline IS 'The pipeline''s name at that time; NULL: all pipelines.';
COMMENT ON COLUMN embedsidecar.audit.arguments IS 'The arguments; of the keys the first hundred, and their number.';
COMMENT ON COLUMN embedsidecar.audit.result IS 'The outcome; of a job its stage, or how it ended.';
COMMENT ON COLUMN embedsidecar.audit.changed IS 'Number of rows.';
COMMENT ON COLUMN embedsidecar.audit.labels IS 'The labels that the pipeline has now.';
