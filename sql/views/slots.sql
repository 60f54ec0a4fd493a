CREATE OR REPLACE VIEW embedsidecar.slots AS
SELECT s.slot_name, s.publication, s.checkpoint, s.saved_at, s."exists", s.active, s.active_pid, s.held_by,
    s.wal_status, s.safe_wal_bytes, s.lag_bytes,
       s.retained_bytes, s.publication_exists, s.other_server, s.state, s.reason, s.hints, c.hints_ignored
FROM   embedsidecar.slot_states() AS s JOIN embedsidecar.lsn_checkpoint AS c ON c.slot_name = s.slot_name;
COMMENT ON VIEW embedsidecar.slots IS 'The replication slots that changes come from, and their lag.';
COMMENT ON COLUMN embedsidecar.slots.slot_name IS 'Its name.';
COMMENT ON COLUMN embedsidecar.slots.publication IS 'Its publication.';
COMMENT ON COLUMN embedsidecar.slots.checkpoint IS 'Every change before this LSN is in the queue or done.';
COMMENT ON COLUMN embedsidecar.slots.saved_at IS 'When that was last stored; rarely, if the slot is idle.';
COMMENT ON COLUMN embedsidecar.slots.exists IS 'Whether the server has it, for this database.';
COMMENT ON COLUMN embedsidecar.slots.active IS 'Whether a session reads it.';
COMMENT ON COLUMN embedsidecar.slots.active_pid IS 'The pid of that walsender.';
COMMENT ON COLUMN embedsidecar.slots.held_by IS 'application_name of that session.';
COMMENT ON COLUMN embedsidecar.slots.wal_status IS 'reserved, extended, unreserved or lost.';
COMMENT ON COLUMN embedsidecar.slots.safe_wal_bytes IS
    'WAL that can still be written before the slot is lost; NULL: no limit is set.';
COMMENT ON COLUMN embedsidecar.slots.lag_bytes IS 'WAL behind the checkpoint.';
COMMENT ON COLUMN embedsidecar.slots.retained_bytes IS 'WAL that the server keeps for it.';
COMMENT ON COLUMN embedsidecar.slots.publication_exists IS 'Whether the publication exists.';
COMMENT ON COLUMN embedsidecar.slots.other_server IS
    'Whether it was set up on another server: the data was restored or copied.';
COMMENT ON COLUMN embedsidecar.slots.state IS
    'streaming, or the state of its pipelines that follows from it: docs/states.md.';
COMMENT ON COLUMN embedsidecar.slots.reason IS 'The reason, in one sentence.';
COMMENT ON COLUMN embedsidecar.slots.hints IS 'What to do about it; empty: nothing.';
COMMENT ON COLUMN embedsidecar.slots.hints_ignored IS
    'Hints that embedsidecar.hint did not make: a role without the right wrote them. Updated about every minute.';
