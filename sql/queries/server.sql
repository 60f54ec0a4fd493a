-- server: facts of the server and the current role that setting up and running depend on. streamed: someone streams
-- from @slot. tables_only: the server can be told to refuse views in place of tables. emitters: who may write logical
-- messages: '' for everyone, or the first few roles that can log in. vector_may: the role may install pgvector. owns:
-- the role owns the schema embedsidecar.
-- Rows: one. Locks: none.
WITH emit AS (
    SELECT p.oid, coalesce(p.proacl, acldefault('f', p.proowner)) AS acl
    FROM   pg_proc AS p WHERE p.proname = 'pg_logical_emit_message' AND p.pronamespace = 'pg_catalog'::regnamespace)
SELECT current_setting('server_version_num')::int AS version, current_setting('wal_level') AS wal_level,
    pg_is_in_recovery() AS standby,
       current_setting('max_slot_wal_keep_size') AS keep, (SELECT setting::bigint FROM pg_settings
           WHERE name = 'max_slot_wal_keep_size') AS keep_mb,
       (SELECT count(*)::int FROM pg_replication_slots) AS slots,
           current_setting('max_replication_slots')::int AS max_slots,
       (SELECT count(*)::int FROM pg_stat_replication) AS senders,
       current_setting('max_wal_senders')::int AS max_senders,
       EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = @slot) AS exists,
       coalesce((SELECT active FROM pg_replication_slots WHERE slot_name = @slot), false) AS streamed,
       coalesce((SELECT extversion FROM pg_extension WHERE extname = 'vector'), '') AS vector,
       coalesce((SELECT default_version FROM pg_available_extensions WHERE name = 'vector'), '') AS vector_available,
       has_database_privilege(current_database(), 'CREATE') AND (r.rolsuper
           OR EXISTS (SELECT FROM pg_available_extension_versions AS v
                      WHERE v.name = 'vector' AND (v.trusted OR NOT v.superuser))
           OR EXISTS (SELECT FROM pg_roles AS m
                      WHERE m.rolname IN ('rds_superuser', 'cloudsqlsuperuser', 'azure_pg_admin')
                            AND pg_has_role(m.oid, 'MEMBER'))) AS vector_may,
       current_database()::text AS database, current_user::text AS role, r.rolsuper AS superuser,
       has_database_privilege(current_database(), 'CREATE') AS may_create,
       coalesce((SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = 'embedsidecar'),
           false) AS owns,
       EXISTS (SELECT FROM pg_namespace WHERE nspname = 'public') AS has_public,
       current_setting('restrict_nonsystem_relation_kind', true) IS NOT NULL AS tables_only,
       CASE WHEN EXISTS (SELECT FROM emit AS p CROSS JOIN aclexplode(p.acl) AS a WHERE a.grantee = 0) THEN ARRAY['']
            ELSE ARRAY(SELECT l.rolname::text FROM pg_roles AS l WHERE l.rolcanlogin AND NOT l.rolsuper
                       AND EXISTS (SELECT FROM emit AS p WHERE has_function_privilege(l.oid, p.oid, 'EXECUTE'))
                           ORDER BY l.rolname LIMIT 20) END AS emitters
FROM   pg_roles AS r
WHERE  r.rolname = current_user;
