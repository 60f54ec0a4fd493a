-- role_givers: roles that this session does not trust (see strangers) but that may grant some roles to anyone,
-- themselves included, by their ADMIN OPTION. From PostgreSQL 16 on, a role without SUPERUSER has it for each role that
-- it created. The owner of the schema embedsidecar is trusted, and so are roles that may act as it.
-- @roles: their names; missing roles do not count. @trusted: the roles that the configuration names.
-- Rows: at most one: the role, and who may grant it. Locks: none.
SELECT r.rolname::text AS role, m.rolname::text AS giver
FROM   pg_auth_members AS a JOIN pg_roles AS r ON r.oid = a.roleid JOIN pg_roles AS m ON m.oid = a.member
WHERE  r.rolname = ANY (@roles::text[]) AND a.admin_option
       AND NOT (m.rolsuper OR m.rolname IN (current_user, session_user) OR m.rolname = ANY (@trusted::text[])
           OR EXISTS (SELECT FROM pg_roles AS t
                      WHERE  (t.rolname = session_user OR t.oid IN (SELECT n.nspowner FROM pg_namespace AS n
                                  WHERE n.nspname = 'embedsidecar'))
                          AND pg_has_role(m.oid, t.oid, CASE WHEN current_setting('server_version_num')::integer
                              < 160000 THEN 'MEMBER' ELSE 'USAGE, SET, MEMBER WITH ADMIN OPTION' END)))
ORDER  BY 1, 2 LIMIT 1;
