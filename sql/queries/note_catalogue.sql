-- note_catalogue: store what the catalogue says of a pipeline's table, and where the table is now called what. The
-- streamer's word is whether a table is there and published: @lack names what it lacks, or is empty. Whether the
-- pipeline fits the table is the supervisor's to say (note_status), and what it said stays. Where a function that texts
-- are made with is another one, entries of the ledger from before then differ from every row, whatever their hashes
-- say.
-- Rows: none. Locks: the pipeline row. Index: primary key.
UPDATE embedsidecar.pipeline AS p
SET    status = CASE WHEN @lack::text <> '' THEN @lack WHEN p.status IN ('missing', 'unpublished') THEN 'active'
    ELSE p.status END,
       status_detail = CASE WHEN @lack::text <> '' THEN @detail WHEN p.status IN ('missing', 'unpublished') THEN ''
           ELSE p.status_detail END,
       catalogue = @catalogue::jsonb,
       table_schema = coalesce(nullif(@table_schema::text, ''), p.table_schema),
           table_name = coalesce(nullif(@table_name::text, ''), p.table_name),
       generation = p.generation + CASE WHEN p.catalogue -> 'functions' <> @catalogue::jsonb -> 'functions' THEN 1
           ELSE 0 END
WHERE  p.pipeline_id = @pipeline_id;
