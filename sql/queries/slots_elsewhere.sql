-- slots_elsewhere: the slots that our checkpoints name and that belong to another database of this server.
-- @slot: one that does not count.
-- Rows: a name each. Locks: none.
SELECT k.slot_name::text
FROM   embedsidecar.lsn_checkpoint AS k JOIN pg_replication_slots AS s ON s.slot_name = k.slot_name
WHERE  s.database IS DISTINCT FROM current_database() AND k.slot_name <> @slot
ORDER BY 1;
