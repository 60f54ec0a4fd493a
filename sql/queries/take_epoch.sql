-- take_epoch: a streamer that holds the slot makes itself the only one whose enqueues count. The timeline is the one it
-- streams: another than before if the server is a standby that was promoted and that had a copy of the slot. A server
-- that went back forgets epochs: chance keeps one from being given out twice.
-- Rows: the new epoch and the checkpoint. Locks: the checkpoint row. Index: primary key.
UPDATE embedsidecar.lsn_checkpoint AS c SET epoch = c.epoch + 1 + (random() * 4294967296)::bigint, timeline = @timeline
    WHERE c.slot_name = @slot RETURNING c.epoch, c.lsn;
