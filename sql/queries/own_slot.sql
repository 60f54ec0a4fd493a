-- own_slot: the slot that this database was set up with, if its name is @slot with at most a number after it.
-- @slot: the name that slots of several databases begin with.
-- Rows: at most one; none if the slot is another database's: then this database is a copy. Locks: none.
SELECT k.slot_name::text
FROM   embedsidecar.lsn_checkpoint AS k
WHERE  (k.slot_name = @slot OR k.slot_name ~ ('^' || @slot || '_[0-9]+$'))
AND    NOT EXISTS (SELECT FROM pg_replication_slots AS s
                   WHERE s.slot_name = k.slot_name AND s.database IS DISTINCT FROM current_database())
ORDER BY k.slot_name <> @slot, k.slot_name
LIMIT 1;
