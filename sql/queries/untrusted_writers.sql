-- untrusted_writers: of some tables, those whose rows a role may write that this session has no reason to trust (see
-- untrusted_owners): what their rows say is done with the rights of this session. Roles that cannot log in count by
-- those who can become them.
-- @tables: their names, quoted. @trusted: whom the configuration names.
-- Rows: the first few. Locks: none.
WITH writer AS (
    SELECT c.oid, r.oid AS role
    FROM   unnest(@tables::text[]) AS t (name)
               JOIN pg_class AS c ON c.oid = to_regclass(t.name)
               CROSS JOIN pg_roles AS r
    WHERE  has_any_column_privilege(r.oid, c.oid, 'INSERT, UPDATE'))
SELECT DISTINCT 'table ' || w.oid::regclass::text AS thing, 'may be written by' AS problem, r.rolname::text AS owner
FROM   writer AS w JOIN pg_roles AS r ON pg_has_role(r.oid, w.role, 'MEMBER')
WHERE  r.rolcanlogin AND NOT (r.rolsuper OR r.rolname = current_user OR r.rolname = ANY (@trusted::text[])
           OR pg_has_role(r.oid, session_user, CASE WHEN current_setting('server_version_num')::integer < 160000
            THEN 'MEMBER' ELSE 'USAGE, SET, MEMBER WITH ADMIN OPTION' END))
ORDER  BY thing, owner LIMIT 5;
