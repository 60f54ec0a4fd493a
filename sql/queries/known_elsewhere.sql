-- known_elsewhere: for each text, one row of some pipelines whose vector was made from the same text by the same model;
-- for adopted ones see known_texts.
-- Rows: pipeline_id, row_key, text_hash, vector_hash. Locks: none. Index: ledger_text_idx; the sum hides the primary
-- key from a planner that takes the pipelines for small and would read all of them for each text.
SELECT f.pipeline_id, f.row_key, h.text_hash, f.vector_hash
FROM   unnest(@text_hashes::bytea[]) AS h (text_hash)
       CROSS JOIN LATERAL (SELECT l.pipeline_id, l.row_key, l.vector_hash
                           FROM   embedsidecar.ledger AS l
                           WHERE  l.text_hash = h.text_hash AND l.pipeline_id + 0 = ANY (@pipeline_ids::integer[])
                               AND NOT (l.lsn = '0/0' AND EXISTS (SELECT FROM embedsidecar.task AS t
                                   JOIN embedsidecar.pipeline AS p ON p.pipeline_id = t.pipeline_id
                                   WHERE t.row_key = l.row_key AND t.pipeline_id = l.pipeline_id
                                       AND p.joins IS NOT NULL OFFSET 0))
                               LIMIT 1) AS f;
