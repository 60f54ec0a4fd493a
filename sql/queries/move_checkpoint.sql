-- move_checkpoint: start a new history of the slot: it was created again, so earlier changes can only be found by
-- comparing rows.
-- Rows: none. Locks: the checkpoint row. Index: primary key.
UPDATE embedsidecar.lsn_checkpoint AS c
SET    lsn = @lsn::pg_lsn, consistent_point = @lsn::pg_lsn, system_id = @system_id, timeline = @timeline,
       publication_oid = (SELECT p.oid FROM pg_publication AS p WHERE p.pubname = c.publication),
           epoch = c.epoch + 1 + (random() * 4294967296)::bigint, saved_at = now()
WHERE  c.slot_name = @slot;
