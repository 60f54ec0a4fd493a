CREATE OR REPLACE VIEW embedsidecar.requests AS
SELECT r.request_id, r.action, r.pipeline, r.definition,
    CASE WHEN r.finished_at IS NOT NULL THEN r.state WHEN r.taken_by <> '' THEN 'in_work' ELSE 'waiting' END AS state,
    CASE WHEN r.finished_at IS NULL THEN embedsidecar.waits_for(r) ELSE nullif(r.reason, '') END AS reason, r.hints,
    r.role_name AS role, r.said_by, r.requested_at, r.finished_at, r.slot_name,
    r.dry_run, r.plan
FROM   embedsidecar.request AS r;
COMMENT ON VIEW embedsidecar.requests IS
    'Pipelines that were requested by SQL or HTTP, and the outcome: the newest 1,000 of each role.';
COMMENT ON COLUMN embedsidecar.requests.request_id IS 'Its number: requests are carried out in this order.';
COMMENT ON COLUMN embedsidecar.requests.action IS 'create, change or drop.';
COMMENT ON COLUMN embedsidecar.requests.pipeline IS 'The name of the pipeline.';
COMMENT ON COLUMN embedsidecar.requests.definition IS 'The whole definition for create; the changed keys for change.';
COMMENT ON COLUMN embedsidecar.requests.state IS 'waiting, in_work, done, planned (a dry run) or refused.';
COMMENT ON COLUMN embedsidecar.requests.reason IS 'Why it is refused, or what it waits for.';
COMMENT ON COLUMN embedsidecar.requests.hints IS 'What to do about it.';
COMMENT ON COLUMN embedsidecar.requests.role IS 'The role that requested it.';
COMMENT ON COLUMN embedsidecar.requests.said_by IS 'The user that the program names; this is not verified.';
COMMENT ON COLUMN embedsidecar.requests.requested_at IS 'When it was requested.';
COMMENT ON COLUMN embedsidecar.requests.finished_at IS 'When it was done, planned or refused.';
COMMENT ON COLUMN embedsidecar.requests.slot_name IS 'The slot of the pipeline.';
COMMENT ON COLUMN embedsidecar.requests.dry_run IS 'Nothing is changed: plan has what would change.';
COMMENT ON COLUMN embedsidecar.requests.plan IS
    'Of a dry run: steps in the database, costs (rows, texts, tokens, price), what is removed and lost, warnings.';
