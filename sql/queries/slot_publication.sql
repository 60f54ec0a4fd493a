-- slot_publication: the publication that a slot was created with.
-- Rows: at most one. Locks: none.
SELECT publication::text
FROM   embedsidecar.lsn_checkpoint
WHERE  slot_name = @slot;
