-- update_pipeline: apply a changed configuration. @generations is added to the generation: 1 if texts may differ from
-- those that the ledger was written for. The catalog's marks stay, so that later changes of the table are still found.
-- It fails if the table was renamed meanwhile: names must mean what was checked. A pause or a resume since the row was
-- read stays.
-- Rows: none. Locks: the pipeline row. Index: primary key.
UPDATE embedsidecar.pipeline AS p
SET    name = @name, table_oid = @oid, table_schema = @schema, table_name = @table,
    source_columns = @columns::text[]::name[], text_expression = @text,
       filter_expression = @filter, key_columns = @keys::text[]::name[], watched_columns = @watched::text[]::name[],
       functions = @functions::text[],
       generated_columns = coalesce((SELECT jsonb_object_agg(a.attname,
           (SELECT coalesce(string_agg(quote_ident(b.attname), ',' ORDER BY b.attname), '') FROM pg_attribute AS b
        WHERE b.attrelid = a.attrelid AND b.attnum <> a.attnum AND EXISTS (SELECT FROM pg_depend AS d LEFT
            JOIN pg_attrdef AS f ON d.classid = 'pg_attrdef'::regclass AND f.oid = d.objid
            WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = a.attrelid AND d.refobjsubid = b.attnum
                AND (f.adrelid = a.attrelid AND f.adnum = a.attnum OR d.classid = 'pg_class'::regclass
                    AND d.objid = a.attrelid AND d.objsubid = a.attnum))))
        FROM pg_attribute AS a WHERE a.attrelid = @oid AND a.attgenerated <> ''), '{}'),
       column_numbers = CASE WHEN p.table_oid = @oid THEN p.column_numbers
           ELSE '{}' END || coalesce((SELECT jsonb_object_agg(a.attname, a.attnum) FROM pg_attribute AS a
        WHERE a.attrelid = @oid AND a.attnum > 0 AND NOT a.attisdropped), '{}'),
       destination_column = @into_column, destination_schema = @into_schema, destination_table = @into_table,
           dims = @dims, plugin = @plugin,
       destination_oid = (SELECT c.oid FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
           WHERE n.nspname = @into_schema AND c.relname = @into_table),
       model = @model, chunking = @chunking, fingerprint = @fingerprint, lane = @lane,
           enabled = CASE WHEN p.enabled = @enabled_before THEN @enabled ELSE p.enabled END,
           adopting = p.adopting OR @adopting,
           active_hours = @hours, active_minutes = @minutes::text::int4multirange, active_zone = @zone,
           status = 'active', status_detail = '', priority_expression = @priority, ignore_expression = @ignore,
           joins = @joins, joined_text = @joined_text,
       budget = @budget, model_budget = @model_budget, max_attempts = nullif(@max_attempts::integer, 0),
       labels = coalesce(@labels::jsonb, '{}'), batch = @batch,
       generation = p.generation + @generations, definition_version = @version, definitions = @definitions
WHERE  p.pipeline_id = @pipeline_id
       AND EXISTS (SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
           WHERE c.oid = @oid AND c.relname = @table AND n.nspname = @schema);
