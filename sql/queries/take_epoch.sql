-- take_epoch: a streamer that holds the slot makes itself the only one whose enqueues count.
-- Rows: the new epoch and the checkpoint. Locks: the checkpoint row. Index: primary key.
UPDATE embedsidecar.lsn_checkpoint AS c SET epoch = c.epoch + 1 WHERE c.slot_name = @slot RETURNING c.epoch, c.lsn;
