-- slot_unrecorded: as slot_state, if our tables do not exist yet, or the role may not read them.
-- Rows: always one; columns of what does not exist are NULL or empty. Locks: none.
SELECT @slot::text AS name, current_database()::text AS here,
       s.slot_name IS NOT NULL AS exists, coalesce(s.temporary, false) AS temporary,
           coalesce(s.plugin::text, '') AS plugin,
       coalesce(s.database::text, '') AS database, coalesce(s.active, false) AS active,
           coalesce(s.active_pid, 0) AS pid, s.confirmed_flush_lsn,
       coalesce(s.wal_status, '') AS wal_status,
       coalesce(a.application_name, '') AS application, coalesce(a.usename::text, '') AS role,
           coalesce(host(a.client_addr), '') AS address,
       pg_is_in_recovery() AS standby, current_setting('server_version_num')::int AS version
FROM   (SELECT) AS one
       LEFT JOIN pg_replication_slots AS s ON s.slot_name = @slot
       LEFT JOIN pg_stat_activity AS a ON a.pid = s.active_pid;
