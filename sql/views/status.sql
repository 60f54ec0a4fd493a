CREATE OR REPLACE VIEW embedsidecar.status AS
SELECT s.pipeline_id, s.pipeline, s.slot_name, s.table_schema::name AS table_schema, s.table_name::name AS table_name,
    s.model, s.plugin, s.generation,
       s.enabled, s.status, s.status_detail, s.pending, s.running, s.retrying, s.failed, s.cancelled, s.oldest_seconds,
           s.scan_phase, s.unrouted,
       s.sidecar_runs, s.tokens_embedded, s.rows_estimate, s.is_open, s.active_hours, s.state, s.reason, s.hints,
           s.works, s.needs_act, s.may_miss,
       coalesce((SELECT p.labels FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = s.pipeline_id), '{}') AS labels
FROM   embedsidecar.states() AS s
WHERE  s.pipeline_id NOT IN (SELECT p.pipeline_id FROM embedsidecar.pipeline AS p WHERE p.beside IS NOT NULL);
COMMENT ON VIEW embedsidecar.status IS
    'One row per pipeline: its state, as all interfaces show it, and the figures. Counts are exact up to 100,000 and '
    'end there; none of your tables is counted.';
COMMENT ON COLUMN embedsidecar.status.pipeline_id IS 'Its number.';
COMMENT ON COLUMN embedsidecar.status.pipeline IS 'The pipeline''s name.';
COMMENT ON COLUMN embedsidecar.status.slot_name IS 'The replication slot that its changes come from.';
COMMENT ON COLUMN embedsidecar.status.table_schema IS 'Current schema of the source table.';
COMMENT ON COLUMN embedsidecar.status.table_name IS 'Current name of the source table.';
COMMENT ON COLUMN embedsidecar.status.model IS 'The model that embeds.';
COMMENT ON COLUMN embedsidecar.status.plugin IS 'The program that runs the model.';
COMMENT ON COLUMN embedsidecar.status.generation IS 'Increases with each change of what vectors are made with.';
COMMENT ON COLUMN embedsidecar.status.enabled IS 'Whether neither it nor all pipelines are paused.';
COMMENT ON COLUMN embedsidecar.status.status IS
    'Whether it fits its table, by the last check: active, missing, misconfigured or unpublished.';
COMMENT ON COLUMN embedsidecar.status.status_detail IS 'Why it is not active, and what to do.';
COMMENT ON COLUMN embedsidecar.status.pending IS 'Rows that wait to be embedded.';
COMMENT ON COLUMN embedsidecar.status.running IS 'Rows that are being embedded.';
COMMENT ON COLUMN embedsidecar.status.retrying IS 'Rows that failed and are retried, or were scheduled for later.';
COMMENT ON COLUMN embedsidecar.status.failed IS 'Dead letters: rows that could not be embedded.';
COMMENT ON COLUMN embedsidecar.status.cancelled IS 'Rows that were removed from the queue.';
COMMENT ON COLUMN embedsidecar.status.oldest_seconds IS 'Age of the oldest waiting change; NULL: none waits.';
COMMENT ON COLUMN embedsidecar.status.scan_phase IS 'waiting, rows, orphans or done: see progress.';
COMMENT ON COLUMN embedsidecar.status.unrouted IS 'Whether the streamer has not loaded its current definition yet.';
COMMENT ON COLUMN embedsidecar.status.sidecar_runs IS 'Whether a sidecar for its slot was seen recently.';
COMMENT ON COLUMN embedsidecar.status.tokens_embedded IS 'Tokens that were embedded for it.';
COMMENT ON COLUMN embedsidecar.status.rows_estimate IS 'Rows of the source table, by the server''s estimate.';
COMMENT ON COLUMN embedsidecar.status.is_open IS 'Whether it is within its hours, or works outside of them on request.';
COMMENT ON COLUMN embedsidecar.status.active_hours IS 'When it works: windows, or manual; empty: always.';
COMMENT ON COLUMN embedsidecar.status.state IS 'Its state: docs/states.md.';
COMMENT ON COLUMN embedsidecar.status.reason IS 'The reason, in one sentence.';
COMMENT ON COLUMN embedsidecar.status.hints IS 'What to do about it; empty: nothing.';
COMMENT ON COLUMN embedsidecar.status.works IS 'Whether rows are embedded in this state, if there are any.';
COMMENT ON COLUMN embedsidecar.status.needs_act IS 'Whether the state does not end by itself.';
COMMENT ON COLUMN embedsidecar.status.labels IS 'Names and values to select it by.';
COMMENT ON COLUMN embedsidecar.status.may_miss IS
    'Whether changes may have been missed or are not read: the coverage is unknown.';
