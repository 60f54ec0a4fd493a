-- insert_pipeline: write down a pipeline that the catalogue has confirmed, if its table is still called so.
-- Rows: its number, or none. Locks: the new row. Index: unique name.
INSERT INTO embedsidecar.pipeline (name, slot_name, table_oid, table_schema, table_name, source_columns,
    text_expression, filter_expression,
    key_columns, watched_columns, functions, generated_columns, column_numbers, destination_column, destination_schema,
        destination_table, destination_oid, dims, plugin, model, chunking, fingerprint, lane, enabled, active_hours,
        active_minutes, active_zone, definitions, priority_expression, ignore_expression, joins,
        joined_text, budget, model_budget, max_attempts, labels, batch)
SELECT @name, @slot, @oid, @schema, @table, @columns::text[]::name[], @text, @filter,
    @keys::text[]::name[], @watched::text[]::name[], @functions::text[],
    coalesce((SELECT jsonb_object_agg(a.attname,
        (SELECT coalesce(string_agg(quote_ident(b.attname), ',' ORDER BY b.attname), '') FROM pg_attribute AS b
        WHERE b.attrelid = a.attrelid AND b.attnum <> a.attnum AND EXISTS (SELECT FROM pg_depend AS d LEFT
            JOIN pg_attrdef AS f ON d.classid = 'pg_attrdef'::regclass AND f.oid = d.objid
            WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = a.attrelid AND d.refobjsubid = b.attnum
                AND (f.adrelid = a.attrelid AND f.adnum = a.attnum OR d.classid = 'pg_class'::regclass
                    AND d.objid = a.attrelid AND d.objsubid = a.attnum))))
        FROM pg_attribute AS a WHERE a.attrelid = @oid AND a.attgenerated <> ''), '{}'),
    coalesce((SELECT jsonb_object_agg(a.attname, a.attnum) FROM pg_attribute AS a
    WHERE a.attrelid = @oid AND a.attnum > 0 AND NOT a.attisdropped), '{}'),
    @into_column, @into_schema, @into_table,
    (SELECT c.oid FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = @into_schema
        AND c.relname = @into_table), @dims, @plugin, @model, @chunking, @fingerprint, @lane, @enabled, @hours,
        @minutes::text::int4multirange, @zone, @definitions, @priority, @ignore, @joins, @joined_text, @budget,
        @model_budget, nullif(@max_attempts::integer, 0), coalesce(@labels::jsonb, '{}'), @batch
WHERE  EXISTS (SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
       WHERE c.oid = @oid AND c.relname = @table AND n.nspname = @schema)
RETURNING pipeline_id;
