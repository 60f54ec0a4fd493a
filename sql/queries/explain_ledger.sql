-- explain_ledger: what was last written for a row, and when.
-- Rows: one, or none. Locks: none. Index: primary key of ledger.
SELECT coalesce(encode(l.text_hash, 'hex'), '') AS text_hash, l.generation, l.lsn::text, l.written_at,
       extract(epoch FROM now() - l.written_at)::double precision AS written_seconds_ago, length(l.vector_hash) = 0 AS anew
FROM   embedsidecar.ledger AS l
WHERE  l.pipeline_id = @pipeline_id AND l.row_key = @row_key;
