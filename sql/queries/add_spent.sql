-- add_spent: note what pipelines have cost since the last time, and what of their rows cost nothing. Parameters: arrays
-- of one length, one element per pipeline.
-- Rows: none. Locks: the rows of the pipelines' costs. Index: primary keys.
INSERT INTO embedsidecar.spent AS s (pipeline_id, tokens_embedded, texts_embedded, texts_reused, rows_unchanged,
    texts_cut)
SELECT i.pipeline_id, i.tokens, i.embedded, i.reused, i.unchanged, i.cut
FROM   unnest(@pipeline_ids::integer[], @tokens::bigint[], @embedded::bigint[], @reused::bigint[], @unchanged::bigint[],
              @cut::bigint[]) AS i (pipeline_id, tokens, embedded, reused, unchanged, cut)
WHERE  EXISTS (SELECT FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = i.pipeline_id)
ORDER BY i.pipeline_id
ON CONFLICT (pipeline_id) DO UPDATE
SET    tokens_embedded = s.tokens_embedded + excluded.tokens_embedded,
    texts_embedded = s.texts_embedded + excluded.texts_embedded,
       texts_reused = s.texts_reused + excluded.texts_reused,
           rows_unchanged = s.rows_unchanged + excluded.rows_unchanged, texts_cut = s.texts_cut + excluded.texts_cut;
