-- add_spent: note what pipelines have cost since the last time, and what of their rows cost nothing. Parameters: arrays of one length, one element
-- per pipeline.
-- Rows: none. Locks: the pipeline rows. Index: primary key.
UPDATE embedsidecar.pipeline AS p
SET    tokens_embedded = p.tokens_embedded + i.tokens, texts_embedded = p.texts_embedded + i.embedded,
       texts_reused = p.texts_reused + i.reused, rows_unchanged = p.rows_unchanged + i.unchanged
FROM   unnest(@pipeline_ids::integer[], @tokens::bigint[], @embedded::bigint[], @reused::bigint[], @unchanged::bigint[])
       AS i (pipeline_id, tokens, embedded, reused, unchanged)
WHERE  p.pipeline_id = i.pipeline_id;
