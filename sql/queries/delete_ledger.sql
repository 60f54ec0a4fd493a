-- delete_ledger: forget rows that are gone.
-- Rows: none. Locks: the ledger rows. Index: primary key.
DELETE FROM embedsidecar.ledger AS l WHERE l.pipeline_id = @pipeline_id AND l.row_key = ANY (@row_keys::text[]);
