-- roles_with_rights: which roles have the rights of which role of roles.sql. Several rights that no other role has
-- identify it: a role that was granted only one of them gets no more.
-- Rows: the role of roles.sql, and the role that has its rights, quoted. Locks: none.
WITH mark (role, privilege, name) AS (VALUES
    ('embedsidecar_run', 'UPDATE', 'task'), ('embedsidecar_run', 'DELETE', 'ledger'),
    ('embedsidecar_run', 'INSERT', 'worker'),
    ('embedsidecar_reader', 'SELECT', 'status'), ('embedsidecar_reader', 'SELECT', 'tasks'),
    ('embedsidecar_reader', 'SELECT', 'dead_letters'), ('embedsidecar_reader', 'SELECT', 'slots'),
    ('embedsidecar_reader', 'SELECT', 'workers'), ('embedsidecar_reader', 'SELECT', 'audit'),
    ('embedsidecar_operator', 'EXECUTE', 'pause'), ('embedsidecar_operator', 'EXECUTE', 'cancel'),
    ('embedsidecar_operator', 'EXECUTE', 'discard_dead'), ('embedsidecar_operator', 'EXECUTE', 'set_priority'),
    ('embedsidecar_operator', 'EXECUTE', 'model_switch'), ('embedsidecar_operator', 'EXECUTE', 'model_drop_old'),
    ('embedsidecar_searcher', 'EXECUTE', 'search'), ('embedsidecar_searcher', 'EXECUTE', 'neighbours'),
    ('embedsidecar_searcher', 'EXECUTE', 'embed'), ('embedsidecar_searcher', 'EXECUTE', 'ask')),
given AS (
    SELECT a.grantee, a.privilege_type AS privilege, c.relname AS name
    FROM   pg_catalog.pg_class AS c CROSS JOIN LATERAL pg_catalog.aclexplode(c.relacl) AS a
    WHERE  c.relnamespace = 'embedsidecar'::regnamespace AND a.grantee NOT IN (0, c.relowner)
    UNION
    SELECT a.grantee, a.privilege_type, p.proname
    FROM   pg_catalog.pg_proc AS p CROSS JOIN LATERAL pg_catalog.aclexplode(p.proacl) AS a
    WHERE  p.pronamespace = 'embedsidecar'::regnamespace AND a.grantee NOT IN (0, p.proowner))
SELECT m.role, g.grantee::regrole::text
FROM   mark AS m JOIN given AS g ON g.privilege = m.privilege AND g.name = m.name
GROUP  BY m.role, g.grantee
HAVING count(*) = (SELECT count(*) FROM mark AS o WHERE o.role = m.role)
       -- a role that works may read all tables, and so all views
       AND NOT (m.role = 'embedsidecar_reader'
           AND pg_catalog.has_table_privilege(g.grantee, 'embedsidecar.task', 'UPDATE'));
