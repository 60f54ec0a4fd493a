-- known_texts: for each text, one row of the pipeline whose vector was made from the same text, under any definition:
-- the model of a row of pipeline never changes. With joins, an adopted vector of a row with a task may be of
-- another text (worker.doubtful).
-- Rows: row_key, text_hash, vector_hash. Locks: none. Index: ledger_text_idx; the sum hides the primary key from a
-- planner that takes the pipeline for small and would read all of it for each text.
SELECT f.row_key, h.text_hash, f.vector_hash
FROM   unnest(@text_hashes::bytea[]) AS h (text_hash)
       CROSS JOIN LATERAL (SELECT l.row_key, l.vector_hash FROM embedsidecar.ledger AS l
                           WHERE l.text_hash = h.text_hash AND l.pipeline_id + 0 = @pipeline_id
                               AND NOT (l.lsn = '0/0' AND EXISTS (SELECT FROM embedsidecar.task AS t
                                   JOIN embedsidecar.pipeline AS p ON p.pipeline_id = t.pipeline_id
                                   WHERE t.row_key = l.row_key AND t.pipeline_id = l.pipeline_id
                                       AND p.joins IS NOT NULL OFFSET 0))
                               LIMIT 1) AS f;
