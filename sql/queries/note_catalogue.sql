-- note_catalogue: store what the catalog says of a pipeline's table, and the table's current name. The streamer decides
-- whether a table exists and is published: @lack names what it lacks, or is empty. The supervisor decides whether the
-- pipeline fits the table (note_status), and its verdict stays. If a function that texts are made with was replaced,
-- earlier entries of the ledger differ from every row, whatever their hashes. The same if a column's name is another's
-- now: a sidecar that has not loaded this yet reads and writes that one, and what it does no longer counts.
-- Rows: none. Locks: the pipeline row. Index: primary key.
UPDATE embedsidecar.pipeline AS p
SET    status = CASE WHEN @lack::text <> '' THEN @lack WHEN p.status IN ('missing', 'unpublished') THEN 'active'
    ELSE p.status END,
       status_detail = CASE WHEN @lack::text <> '' THEN @detail WHEN p.status IN ('missing', 'unpublished') THEN ''
           ELSE p.status_detail END,
       catalogue = @catalogue::jsonb,
       table_schema = coalesce(nullif(@table_schema::text, ''), p.table_schema),
           table_name = coalesce(nullif(@table_name::text, ''), p.table_name),
       generation = p.generation + CASE WHEN p.catalogue -> 'functions' <> @catalogue::jsonb -> 'functions'
           OR p.catalogue -> 'taken' IS DISTINCT FROM @catalogue::jsonb -> 'taken' THEN 1 ELSE 0 END
WHERE  p.pipeline_id = @pipeline_id;
