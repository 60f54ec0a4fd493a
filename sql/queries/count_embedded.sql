-- count_embedded: how many rows forget_vectors would have embedded anew: those that have a vector. @row_keys are those meant; NULL: all.
-- Rows: one. Locks: none. Index: primary key of ledger.
SELECT count(*)
FROM   embedsidecar.ledger
WHERE  pipeline_id = @pipeline_id AND text_hash IS NOT NULL AND (@row_keys::text[] IS NULL OR row_key = ANY (@row_keys));
