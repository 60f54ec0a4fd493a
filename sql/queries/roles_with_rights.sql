-- roles_with_rights: who has rights of which role of roles.sql, known by one right that no other has.
-- Rows: the role of roles.sql, and who has its rights, quoted. Locks: none.
SELECT CASE c.relname WHEN 'task' THEN 'embedsidecar_run' ELSE 'embedsidecar_reader' END, a.grantee::regrole::text
FROM   pg_catalog.pg_class AS c CROSS JOIN LATERAL pg_catalog.aclexplode(c.relacl) AS a
WHERE  c.relnamespace = 'embedsidecar'::regnamespace AND a.grantee NOT IN (0, c.relowner)
       AND (c.relname = 'task' AND a.privilege_type = 'UPDATE' OR c.relname = 'dead_letters'
           AND a.privilege_type = 'SELECT'
       -- a role that works may read all tables, and so all views
       AND NOT pg_catalog.has_table_privilege(a.grantee, 'embedsidecar.task', 'UPDATE'))
UNION
SELECT CASE p.proname WHEN 'pause' THEN 'embedsidecar_operator'
    ELSE 'embedsidecar_searcher' END, a.grantee::regrole::text
FROM   pg_catalog.pg_proc AS p CROSS JOIN LATERAL pg_catalog.aclexplode(p.proacl) AS a
WHERE  p.pronamespace = 'embedsidecar'::regnamespace AND p.proname IN ('pause', 'search')
    AND a.grantee NOT IN (0, p.proowner)
