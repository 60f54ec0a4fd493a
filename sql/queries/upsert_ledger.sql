-- upsert_ledger: remember what was written for rows.
-- Rows: none. Locks: the ledger rows. Index: primary key.
INSERT INTO embedsidecar.ledger AS l (pipeline_id, row_key, source_hash, text_hash, vector_hash, generation, lsn)
SELECT @pipeline_id, i.row_key, i.source_hash, i.text_hash, i.vector_hash, @generation, i.lsn
FROM   unnest(@row_keys::text[], @source_hashes::bytea[], @text_hashes::bytea[], @vector_hashes::bytea[], @lsns::pg_lsn[])
       AS i (row_key, source_hash, text_hash, vector_hash, lsn)
ORDER BY i.row_key
ON CONFLICT (pipeline_id, row_key) DO UPDATE SET
    source_hash = excluded.source_hash, text_hash = excluded.text_hash, vector_hash = excluded.vector_hash,
    generation = excluded.generation, lsn = excluded.lsn, written_at = now();
