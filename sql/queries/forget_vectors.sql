-- forget_vectors: have rows of a pipeline embedded anew, though their texts are what they were: an entry whose vector has no hash fits no vector, and
-- whoever looks at its row reuses none. A portion at a time, by key; @row_keys are those meant, NULL: all.
-- Rows: one: how many entries, and the last of their keys. Locks: the ledger rows, until the transaction ends. Index: primary key.
WITH marked AS (
    UPDATE embedsidecar.ledger AS l
    SET    text_hash = NULL, vector_hash = ''
    WHERE  l.pipeline_id = @pipeline_id AND l.row_key = ANY (ARRAY(
        SELECT w.row_key FROM embedsidecar.ledger AS w
        WHERE  w.pipeline_id = @pipeline_id AND w.row_key > @after AND w.text_hash IS NOT NULL AND (@row_keys::text[] IS NULL OR w.row_key = ANY (@row_keys))
        ORDER BY w.row_key LIMIT 2000))
    RETURNING l.row_key
)
SELECT count(*), coalesce(max(m.row_key), '') FROM marked AS m;
