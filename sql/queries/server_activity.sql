-- server_activity: what a server reports, without sessions in them, about databases that a sidecar has left: @databases
-- with their @slots.
-- changes is a number that changes when rows were changed there, and with every crash or reset. called: a session there
-- waits for a sidecar (embedsidecar.call). ours and others count the sessions of this sidecar and of other ones. behind
-- is WAL that was not read from the slot; NULL: the slot is gone, or about to be.
-- Rows: one per existing database. Locks: none.
WITH session AS MATERIALIZED (
    SELECT a.datid, count(*) FILTER (WHERE a.application_name = current_setting('application_name')) AS ours,
           count(*) FILTER (WHERE a.application_name <> current_setting('application_name')) AS others
    FROM   pg_stat_activity AS a
    WHERE  a.application_name LIKE 'embedsidecar%' AND a.pid <> pg_backend_pid()
    GROUP  BY 1
), called AS MATERIALIZED (
    SELECT DISTINCT l.database FROM pg_locks AS l
    WHERE  l.locktype = 'advisory' AND l.classid = 1701013875 AND l.objid = 1 AND l.objsubid = 2
)
SELECT d.datname::text AS database,
       pg_stat_get_db_tuples_inserted(d.oid) + pg_stat_get_db_tuples_updated(d.oid)
           + pg_stat_get_db_tuples_deleted(d.oid) AS changes,
       EXISTS (SELECT FROM called AS c WHERE c.database = d.oid) AS called,
       coalesce(s.ours, 0) AS ours, coalesce(s.others, 0) AS others,
       CASE WHEN r.wal_status IN ('reserved', 'extended') AND NOT coalesce(r.safe_wal_size < b.behind, false)
           THEN b.behind END AS behind
FROM   unnest(@databases::text[], @slots::text[]) AS u (database, slot)
       JOIN pg_database AS d ON d.datname = u.database AND d.datallowconn
       LEFT JOIN session AS s ON s.datid = d.oid
       LEFT JOIN pg_replication_slots AS r ON r.slot_name = u.slot AND r.database = u.database
       CROSS JOIN LATERAL (SELECT pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
           ELSE pg_current_wal_lsn() END, r.confirmed_flush_lsn)::bigint AS behind) AS b;
