-- untrusted_writers: of some tables, those whose rows may be written by a role that this session does not trust (see
-- untrusted_owners): what the rows say is done with the rights of this session. Roles that cannot log in count by those
-- who may act as them. Each grant is compared with each role, not each role with each other.
-- @tables: their names, quoted. @trusted: the roles that the configuration names.
-- Rows: the first few. Locks: none.
WITH writer AS (
    SELECT c.oid, g.role
    FROM   unnest(@tables::text[]) AS t (name) JOIN pg_class AS c ON c.oid = to_regclass(t.name)
           CROSS JOIN LATERAL (
               SELECT c.relowner
               UNION SELECT a.grantee FROM aclexplode(c.relacl) AS a WHERE a.privilege_type IN ('INSERT', 'UPDATE')
               UNION SELECT a.grantee FROM pg_attribute AS k CROSS JOIN aclexplode(k.attacl) AS a
                     WHERE k.attrelid = c.oid AND a.privilege_type IN ('INSERT', 'UPDATE')
               UNION SELECT r.oid FROM pg_roles AS r WHERE r.rolname = 'pg_write_all_data') AS g (role))
SELECT DISTINCT 'table ' || w.oid::regclass::text AS thing, 'may be written by' AS problem, r.rolname::text AS owner
FROM   (SELECT CASE WHEN current_setting('server_version_num')::integer < 160000
            THEN 'MEMBER' ELSE 'USAGE, SET, MEMBER WITH ADMIN OPTION' END AS act) AS may
       CROSS JOIN writer AS w JOIN pg_roles AS r ON w.role = 0 OR pg_has_role(r.oid, w.role, may.act)
WHERE  r.rolcanlogin AND NOT (TRUSTED r)
ORDER  BY thing, owner LIMIT 5;
