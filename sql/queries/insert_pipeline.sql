-- insert_pipeline: write down a pipeline that the catalogue has confirmed.
-- Rows: its number. Locks: the new row. Index: unique name.
INSERT INTO embedsidecar.pipeline (name, slot_name, table_oid, table_schema, table_name, source_columns, text_expression, filter_expression,
    key_columns, watched_columns, generated_columns, destination_column, destination_schema, destination_table, dims, plugin, model, chunking, fingerprint, lane, enabled)
VALUES (@name, @slot, @oid, @schema, @table, @columns::text[]::name[], @text, @filter,
    @keys::text[]::name[], @watched::text[]::name[],
    coalesce((SELECT jsonb_object_agg(a.attname, pg_get_expr(d.adbin, d.adrelid)) FROM pg_attribute AS a
        JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum WHERE a.attrelid = @oid AND a.attgenerated <> ''), '{}'),
    @into_column, @into_schema, @into_table, @dims, @plugin, @model, @chunking, @fingerprint, @lane, @enabled)
RETURNING pipeline_id;
