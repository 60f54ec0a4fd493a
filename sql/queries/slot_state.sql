-- slot_state: all that must agree before a stream may go on: slot, publication and checkpoint, and the server's WAL end.
-- Rows: one if the slot has a checkpoint; slot columns are NULL if the server has no such slot.
SELECT c.lsn, c.system_id, c.timeline, c.publication, c.publication_oid, c.epoch,
       p.oid AS current_publication_oid,
       s.slot_name IS NOT NULL AS slot_exists, s.plugin, s.database = current_database() AS same_database,
       coalesce(s.active, false) AS active, s.active_pid, s.confirmed_flush_lsn, coalesce(s.wal_status, '') AS wal_status,
       coalesce((to_jsonb(s) ->> 'failover')::boolean, false) AS failover, -- a column from PostgreSQL 17 on
       a.application_name AS holder, host(a.client_addr) AS holder_address,
       CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END AS wal_end, pg_is_in_recovery() AS standby,
       current_setting('server_version_num')::int AS version
FROM   embedsidecar.lsn_checkpoint AS c
       LEFT JOIN pg_publication AS p ON p.pubname = c.publication
       LEFT JOIN pg_replication_slots AS s ON s.slot_name = c.slot_name
       LEFT JOIN pg_stat_activity AS a ON a.pid = s.active_pid
WHERE  c.slot_name = @slot;
