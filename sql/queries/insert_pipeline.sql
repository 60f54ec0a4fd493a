-- insert_pipeline: insert the row of a pipeline that the catalog has confirmed, with the NOT NULL columns only.
-- update_pipeline writes the rest in the same transaction, and fails if the table was renamed meanwhile.
-- @since: the snapshot since which rows may have changed without the stream; empty: now.
-- Rows: its number. Locks: the new row. Index: unique name.
INSERT INTO embedsidecar.pipeline (name, slot_name, table_oid, table_schema, table_name, source_columns, key_columns,
    destination_column, destination_table, dims, plugin, model, fingerprint, enabled, set_up)
VALUES (@name, @slot, @oid, @schema, @table, @columns::text[]::name[], @keys::text[]::name[], @into_column, @into_table,
    @dims, @plugin, @model, @fingerprint, @enabled,
    coalesce(nullif(@since::text, '')::pg_snapshot, pg_current_snapshot()))
RETURNING pipeline_id;
