-- running_role: the role that a sidecar runs as, for grants to it: that of a running sidecar; otherwise the role
-- @usual, if it exists; otherwise the current role. Of two, one that may replicate probably only streams.
-- Rows: one. Locks: none.
SELECT coalesce(
    (SELECT a.usename::text
     FROM   embedsidecar.worker AS w
            JOIN pg_stat_activity AS a ON a.application_name = w.session_name
            JOIN pg_roles AS r ON r.oid = a.usesysid
     WHERE  w.session_name <> '' AND w.last_seen_at > now() - interval '5 minutes'
            AND a.datname = current_database() AND a.pid <> pg_backend_pid() AND embedsidecar.may_work(a.usesysid)
     ORDER  BY r.rolreplication, 1
     LIMIT  1),
    (SELECT rolname::text FROM pg_roles WHERE rolname = @usual::text),
    current_user::text);
