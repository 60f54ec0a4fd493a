-- own_slot: the slot that this database was set up with, if nothing but a number may stand behind its name.
-- @slot: the name that slots of several databases begin with.
-- Rows: one at most; none where the slot is another database's: then this one is a copy. Locks: none.
SELECT k.slot_name::text
FROM   embedsidecar.lsn_checkpoint AS k
WHERE  (k.slot_name = @slot OR k.slot_name ~ ('^' || @slot || '_[0-9]+$'))
AND    NOT EXISTS (SELECT FROM pg_replication_slots AS s
                   WHERE s.slot_name = k.slot_name AND s.database IS DISTINCT FROM current_database())
ORDER BY k.slot_name <> @slot, k.slot_name
LIMIT 1;
