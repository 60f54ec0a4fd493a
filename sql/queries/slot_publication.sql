-- slot_publication: the publication that a slot was made with, and the server's version.
-- Rows: at most one. Locks: none.
SELECT publication::text, current_setting('server_version_num')::int AS version
FROM   embedsidecar.lsn_checkpoint
WHERE  slot_name = @slot;
