CREATE OR REPLACE VIEW embedsidecar.pipelines AS
SELECT p.name AS pipeline, p.pipeline_id, p.table_schema, p.table_name, p.source_columns, p.text_expression,
    p.filter_expression, p.key_columns, p.watched_columns,
       p.destination_column, p.destination_schema, p.destination_table, p.dims, p.plugin, p.model, p.fingerprint,
           p.chunking, p.generation, p.definition_version,
       (ARRAY['low', 'normal', 'high', 'urgent'])[p.lane + 1] AS priority, p.enabled, p.status, p.status_detail,
           p.slot_name, p.created_at, p.active_hours, p.open_until, p.max_attempts::integer AS max_attempts, p.labels
FROM   embedsidecar.pipeline AS p WHERE p.beside IS NULL;
COMMENT ON VIEW embedsidecar.pipelines IS 'The pipelines: source, text, model and destination.';
COMMENT ON COLUMN embedsidecar.pipelines.pipeline IS 'The pipeline''s name.';
COMMENT ON COLUMN embedsidecar.pipelines.pipeline_id IS 'Its number.';
COMMENT ON COLUMN embedsidecar.pipelines.table_schema IS 'Schema of the source table, as the pipeline last knew it.';
COMMENT ON COLUMN embedsidecar.pipelines.table_name IS 'The source table.';
COMMENT ON COLUMN embedsidecar.pipelines.source_columns IS 'Columns that the text consists of.';
COMMENT ON COLUMN embedsidecar.pipelines.text_expression IS 'The expression of the text, instead of columns.';
COMMENT ON COLUMN embedsidecar.pipelines.filter_expression IS 'Rows for which this is not true have no vector.';
COMMENT ON COLUMN embedsidecar.pipelines.key_columns IS 'The columns of row_key.';
COMMENT ON COLUMN embedsidecar.pipelines.watched_columns IS 'Columns that text and filter read; NULL: not known.';
COMMENT ON COLUMN embedsidecar.pipelines.destination_column IS 'The column that the vectors go to, or NULL.';
COMMENT ON COLUMN embedsidecar.pipelines.destination_schema IS 'Schema of the embedding table, or NULL.';
COMMENT ON COLUMN embedsidecar.pipelines.destination_table IS 'The embedding table, or NULL.';
COMMENT ON COLUMN embedsidecar.pipelines.dims IS 'Width of the vectors.';
COMMENT ON COLUMN embedsidecar.pipelines.plugin IS 'The program that runs the model.';
COMMENT ON COLUMN embedsidecar.pipelines.model IS 'The model that embeds.';
COMMENT ON COLUMN embedsidecar.pipelines.fingerprint IS
    'The embedder''s identifier of everything that can change a vector.';
COMMENT ON COLUMN embedsidecar.pipelines.chunking IS 'How texts are cut into chunks; empty: not at all.';
COMMENT ON COLUMN embedsidecar.pipelines.generation IS 'Increases with each change of what vectors are made with.';
COMMENT ON COLUMN embedsidecar.pipelines.definition_version IS 'Increases with each change of the configuration.';
COMMENT ON COLUMN embedsidecar.pipelines.priority IS 'The lane of its live changes: low, normal, high or urgent.';
COMMENT ON COLUMN embedsidecar.pipelines.enabled IS 'Whether it is not paused by its own name.';
COMMENT ON COLUMN embedsidecar.pipelines.status IS 'Whether it fits its table, by the last check.';
COMMENT ON COLUMN embedsidecar.pipelines.status_detail IS 'Why it does not fit.';
COMMENT ON COLUMN embedsidecar.pipelines.slot_name IS 'The slot that its changes come from.';
COMMENT ON COLUMN embedsidecar.pipelines.created_at IS 'When it was set up.';
COMMENT ON COLUMN embedsidecar.pipelines.active_hours IS 'When it works: windows, or manual; empty: always.';
COMMENT ON COLUMN embedsidecar.pipelines.max_attempts IS
    'Failures of a row after which it is a dead letter; NULL: the sidecar''s setting for all pipelines.';
COMMENT ON COLUMN embedsidecar.pipelines.labels IS
    'Names and values to select it by: WHERE labels @> ''{"project": "x"}''.';
COMMENT ON COLUMN embedsidecar.pipelines.open_until IS 'Until when it works outside of its hours, on request.';
