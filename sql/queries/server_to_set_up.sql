-- server_to_set_up: the server and the current role, as far as setting up depends on them. owns: the schema
-- embedsidecar is the role's.
-- Rows: one. Locks: none.
SELECT current_setting('server_version_num')::int AS version, current_setting('wal_level') AS wal_level,
    pg_is_in_recovery() AS standby,
       current_database()::text AS database, current_user::text AS role,
       (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS superuser,
       has_database_privilege(current_database(), 'CREATE') AS may_create,
       coalesce((SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = 'embedsidecar'),
           false) AS owns,
       EXISTS (SELECT FROM pg_extension WHERE extname = 'vector') AS vector,
       EXISTS (SELECT FROM pg_namespace WHERE nspname = 'public') AS has_public,
       EXISTS (SELECT FROM pg_namespace WHERE nspname = 'embedsidecar') AS has_schema;
