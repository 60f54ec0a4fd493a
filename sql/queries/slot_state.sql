-- slot_state: what the server says of a slot, our checkpoint, and the publication. A slot that is being created is held
-- and has no position yet.
-- @slot: its name.
-- Rows: always one; columns of what does not exist are NULL or empty. Locks: none.
SELECT n.slot_name::text AS name, current_database()::text AS here,
       s.slot_name IS NOT NULL AS exists, coalesce(s.temporary, false) AS temporary,
           coalesce(s.plugin::text, '') AS plugin,
       coalesce(s.database::text, '') AS database, coalesce(s.active, false) AS active,
           coalesce(s.active_pid, 0) AS pid, s.confirmed_flush_lsn,
       coalesce(s.wal_status, '') AS wal_status, coalesce(s.two_phase, false) AS two_phase,
       coalesce((to_jsonb(s) ->> 'failover')::boolean, false) AS failover, -- a column from PostgreSQL 17 on
       coalesce(a.application_name, '') AS application, coalesce(a.usename::text, '') AS role,
           coalesce(host(a.client_addr), '') AS address,
       c.slot_name IS NOT NULL AS recorded, coalesce(c.consistent_point = '0/0', false) AS begun,
           coalesce(c.lsn, '0/0') AS checkpoint,
       coalesce(c.system_id, '') AS system_id, coalesce(c.timeline, 0) AS timeline, coalesce(c.epoch, 0) AS epoch,
       coalesce(c.publication::text, '') AS publication, coalesce(c.publication_oid, 0) AS publication_oid,
           coalesce(p.oid, 0) AS publication_now,
       CASE WHEN e.standby THEN e.wal_end ELSE pg_current_wal_flush_lsn() END AS wal_end, e.standby, e.server_id,
       current_setting('server_version_num')::int AS version,
       current_setting('synchronous_standby_names') AS standby_names
FROM   (SELECT @slot::text::name AS slot_name) AS n
       CROSS JOIN (SELECT r.standby, CASE WHEN r.standby THEN pg_last_wal_replay_lsn()
           ELSE pg_current_wal_lsn() END AS wal_end,
                          (SELECT system_identifier::text FROM pg_control_system()) AS server_id
                   FROM   (SELECT pg_is_in_recovery() AS standby) AS r) AS e
       LEFT JOIN embedsidecar.lsn_checkpoint AS c ON c.slot_name = n.slot_name
       LEFT JOIN pg_publication AS p ON p.pubname = c.publication
       LEFT JOIN pg_replication_slots AS s ON s.slot_name = n.slot_name
       LEFT JOIN pg_stat_activity AS a ON a.pid = s.active_pid;
