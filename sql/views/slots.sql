CREATE OR REPLACE VIEW embedsidecar.slots AS
SELECT c.slot_name, c.publication, c.lsn AS checkpoint, c.saved_at, s.slot_name IS NOT NULL AS exists, coalesce(s.active, false) AS active, s.active_pid,
       (SELECT a.application_name FROM pg_stat_activity AS a WHERE a.pid = s.active_pid) AS held_by, s.wal_status,
       s.safe_wal_size AS safe_wal_bytes, pg_wal_lsn_diff(e.wal_end, c.lsn)::bigint AS lag_bytes, pg_wal_lsn_diff(e.wal_end, s.restart_lsn)::bigint AS retained_bytes,
       p.oid IS NOT NULL AS publication_exists, c.system_id <> (SELECT k.system_identifier::text FROM pg_control_system() AS k) AS other_server
FROM   embedsidecar.lsn_checkpoint AS c
       CROSS JOIN (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END AS wal_end) AS e
       LEFT JOIN pg_publication AS p ON p.pubname = c.publication
       LEFT JOIN pg_replication_slots AS s ON s.slot_name = c.slot_name AND s.database = current_database();
COMMENT ON VIEW embedsidecar.slots IS 'The replication slots that changes come from, and how far behind they are.';
COMMENT ON COLUMN embedsidecar.slots.slot_name IS 'Its name.';
COMMENT ON COLUMN embedsidecar.slots.publication IS 'What it publishes.';
COMMENT ON COLUMN embedsidecar.slots.checkpoint IS 'Every change before this LSN is in the queue or done.';
COMMENT ON COLUMN embedsidecar.slots.saved_at IS 'When that was stored last; an idle one is stored rarely.';
COMMENT ON COLUMN embedsidecar.slots.exists IS 'The server has it, for this database.';
COMMENT ON COLUMN embedsidecar.slots.active IS 'Somebody reads it.';
COMMENT ON COLUMN embedsidecar.slots.active_pid IS 'Who: the pid of its walsender.';
COMMENT ON COLUMN embedsidecar.slots.held_by IS 'application_name of that.';
COMMENT ON COLUMN embedsidecar.slots.wal_status IS 'reserved, extended, unreserved or lost.';
COMMENT ON COLUMN embedsidecar.slots.safe_wal_bytes IS 'WAL that may still come before the slot is lost; NULL: no limit is set.';
COMMENT ON COLUMN embedsidecar.slots.lag_bytes IS 'WAL behind the checkpoint.';
COMMENT ON COLUMN embedsidecar.slots.retained_bytes IS 'WAL that the server keeps for it.';
COMMENT ON COLUMN embedsidecar.slots.publication_exists IS 'The publication is there.';
COMMENT ON COLUMN embedsidecar.slots.other_server IS 'It was set up on another server: the data was restored or copied.';
