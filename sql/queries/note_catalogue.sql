-- note_catalogue: store what the catalogue says of a pipeline's table, and where the table is now called what.
-- Rows: none. Locks: the pipeline row. Index: primary key.
UPDATE embedsidecar.pipeline AS p
SET    status = @status, status_detail = @detail, catalogue = @catalogue::jsonb,
       table_schema = coalesce(nullif(@table_schema::text, ''), p.table_schema), table_name = coalesce(nullif(@table_name::text, ''), p.table_name)
WHERE  p.pipeline_id = @pipeline_id;
