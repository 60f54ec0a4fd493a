-- status_slots: each slot, its checkpoint and how far behind both are. A slot that is being made is held and has no position yet.
-- other_server: the checkpoint was made on another one, so the data was restored or copied. elsewhere: the database of this server whose slot it is,
-- if that is not this one.
-- Rows: one per slot with a checkpoint. Locks: none.
SELECT c.slot_name, c.publication, c.lsn::text AS checkpoint, s.slot_name IS NOT NULL AS slot_exists, coalesce(s.active, false) AS active,
       (s.active AND s.confirmed_flush_lsn IS NULL) IS TRUE AS making,
       coalesce(s.wal_status, '') AS wal_status, s.safe_wal_size,
       pg_wal_lsn_diff(pg_current_wal_lsn(), c.lsn)::bigint AS lag_bytes,
       coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn), 0)::bigint AS retained_bytes,
       extract(epoch FROM now() - c.saved_at)::double precision AS saved_seconds_ago,
       coalesce(a.application_name, '') AS holder, p.oid IS NOT NULL AS publication_exists,
       c.consistent_point <> '0/0' AND c.system_id <> (SELECT system_identifier::text FROM pg_control_system()) AS other_server,
       CASE WHEN s.database <> current_database() THEN s.database::text ELSE '' END AS elsewhere,
       current_database() AS database
FROM   embedsidecar.lsn_checkpoint AS c
       LEFT JOIN pg_replication_slots AS s ON s.slot_name = c.slot_name
       LEFT JOIN pg_stat_activity AS a ON a.pid = s.active_pid
       LEFT JOIN pg_publication AS p ON p.pubname = c.publication
ORDER BY c.slot_name;
