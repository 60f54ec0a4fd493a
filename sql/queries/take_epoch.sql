-- take_epoch: make a streamer that holds the slot the only one whose enqueues count. The timeline is the one it
-- streams: a new one if the server is a promoted standby with a copy of the slot. A server that lost its latest WAL
-- forgets epochs: a random step keeps it from giving one out twice.
-- Rows: the new epoch and the checkpoint. Locks: the checkpoint row. Index: primary key.
UPDATE embedsidecar.lsn_checkpoint AS c SET epoch = c.epoch + 1 + (random() * 4294967296)::bigint, timeline = @timeline
    WHERE c.slot_name = @slot RETURNING c.epoch, c.lsn;
