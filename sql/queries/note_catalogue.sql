-- note_catalogue: store what the catalogue says of a pipeline's table, and where the table is now called what.
-- Where a function that texts are made with is another one, entries of the ledger from before then differ from every row, whatever their hashes say.
-- Rows: none. Locks: the pipeline row. Index: primary key.
UPDATE embedsidecar.pipeline AS p
SET    status = @status, status_detail = @detail, catalogue = @catalogue::jsonb,
       table_schema = coalesce(nullif(@table_schema::text, ''), p.table_schema), table_name = coalesce(nullif(@table_name::text, ''), p.table_name),
       generation = p.generation + CASE WHEN p.catalogue -> 'functions' <> @catalogue::jsonb -> 'functions' THEN 1 ELSE 0 END
WHERE  p.pipeline_id = @pipeline_id;
