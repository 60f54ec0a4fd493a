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
    'One row per pipeline: its state, as every door shows it, and the figures. Counts are exact up to 100,000 and end '
    'there; no table of yours is counted.';
COMMENT ON COLUMN embedsidecar.status.pipeline_id IS 'Its number.';
COMMENT ON COLUMN embedsidecar.status.pipeline IS 'Its name.';
COMMENT ON COLUMN embedsidecar.status.slot_name IS 'The replication slot that its changes come from.';
COMMENT ON COLUMN embedsidecar.status.table_schema IS 'Schema of the source table, as it is called now.';
COMMENT ON COLUMN embedsidecar.status.table_name IS 'The source table, as it is called now.';
COMMENT ON COLUMN embedsidecar.status.model IS 'What embeds.';
COMMENT ON COLUMN embedsidecar.status.plugin IS 'The program that runs the model.';
COMMENT ON COLUMN embedsidecar.status.generation IS 'Raised by each change of what vectors are made with.';
COMMENT ON COLUMN embedsidecar.status.enabled IS 'Neither it nor all of them are paused.';
COMMENT ON COLUMN embedsidecar.status.status IS
    'Whether it fits its table, as was last found: active, missing, misconfigured or unpublished.';
COMMENT ON COLUMN embedsidecar.status.status_detail IS 'Why it is not active, and what to do.';
COMMENT ON COLUMN embedsidecar.status.pending IS 'Rows that wait to be embedded.';
COMMENT ON COLUMN embedsidecar.status.running IS 'Rows that are being embedded.';
COMMENT ON COLUMN embedsidecar.status.retrying IS
    'Rows that failed and are tried again by themselves, or were put off.';
COMMENT ON COLUMN embedsidecar.status.failed IS 'Dead letters: rows that could not be embedded.';
COMMENT ON COLUMN embedsidecar.status.cancelled IS 'Rows that somebody has taken out of the queue.';
COMMENT ON COLUMN embedsidecar.status.oldest_seconds IS 'Age of the oldest change that waits; NULL: none does.';
COMMENT ON COLUMN embedsidecar.status.scan_phase IS 'waiting, rows, orphans or done: see progress.';
COMMENT ON COLUMN embedsidecar.status.unrouted IS 'The streamer does not know the pipeline yet as it is now.';
COMMENT ON COLUMN embedsidecar.status.sidecar_runs IS 'A sidecar for its slot was seen of late.';
COMMENT ON COLUMN embedsidecar.status.tokens_embedded IS 'Tokens that the embedder has seen for it.';
COMMENT ON COLUMN embedsidecar.status.rows_estimate IS 'Rows of the source table by the server''s own estimate.';
COMMENT ON COLUMN embedsidecar.status.is_open IS 'It is within its hours, or somebody has it work all the same.';
COMMENT ON COLUMN embedsidecar.status.active_hours IS 'When it works: windows, or manual; empty: always.';
COMMENT ON COLUMN embedsidecar.status.state IS 'Where it stands: docs/states.md.';
COMMENT ON COLUMN embedsidecar.status.reason IS 'Why, in a sentence.';
COMMENT ON COLUMN embedsidecar.status.hints IS 'What to do about it; empty: nothing.';
COMMENT ON COLUMN embedsidecar.status.works IS 'Rows are embedded in this state, or would be if there were any.';
COMMENT ON COLUMN embedsidecar.status.needs_act IS 'The state does not end by itself.';
COMMENT ON COLUMN embedsidecar.status.labels IS 'Names and values to find it by.';
COMMENT ON COLUMN embedsidecar.status.may_miss IS
    'Changes may have been missed, or nobody reads them: the coverage is unknown.';
