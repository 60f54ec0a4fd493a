-- adopt_ledger: record that rows have the vectors of their texts, for rows without a ledger entry. An entry that was
-- written meanwhile is newer and stays.
-- Parameters: arrays of one length, one element per key.
-- Rows: the keys that were written. Locks: the new ledger rows. Index: primary key.
INSERT INTO embedsidecar.ledger AS l (pipeline_id, row_key, source_hash, text_hash, norm_hash, vector_hash, generation,
    lsn)
SELECT p.pipeline_id, i.row_key, i.source_hash, i.text_hash, i.norm_hash, i.vector_hash, @generation, '0/0'
FROM   unnest(@row_keys::text[], @source_hashes::bytea[], @text_hashes::bytea[], @vector_hashes::bytea[],
           @norm_hashes::bytea[])
       AS i (row_key, source_hash, text_hash, vector_hash, norm_hash)
       JOIN embedsidecar.pipeline AS p ON p.pipeline_id = @pipeline_id
           AND (p.generation = @generation OR @generation = 0)
ORDER  BY i.row_key COLLATE "C"
ON CONFLICT (pipeline_id, row_key) DO NOTHING
RETURNING l.row_key;
