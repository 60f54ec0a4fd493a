-- save_checkpoint: move the LSN checkpoint of a slot, or only prove that the slot is still ours (@lsn NULL).
-- saved_at voids direct writes of rows that were read before: their changes may become tasks now.
-- Rows: one if the epoch is ours; none if another streamer has taken the slot, or if the checkpoint is before @since:
-- then the table was restored. Locks: the checkpoint row. Index: primary key.
UPDATE embedsidecar.lsn_checkpoint AS c
SET    lsn = greatest(c.lsn, coalesce(@lsn::pg_lsn, c.lsn)), saved_at = now()
WHERE  c.slot_name = @slot AND c.epoch = @epoch AND c.lsn >= @since::pg_lsn
RETURNING c.lsn;
