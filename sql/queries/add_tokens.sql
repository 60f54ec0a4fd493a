-- add_tokens: note what pipelines have cost since the last time. Parameters: arrays of one length, one element per pipeline.
-- Rows: none. Locks: the pipeline rows. Index: primary key.
UPDATE embedsidecar.pipeline AS p
SET    tokens_embedded = p.tokens_embedded + i.tokens
FROM   unnest(@pipeline_ids::integer[], @tokens::bigint[]) AS i (pipeline_id, tokens)
WHERE  p.pipeline_id = i.pipeline_id;
