-- role_givers: who may give some roles to anyone, himself included, by their ADMIN OPTION, though this session has no
-- reason to trust him, as strangers has it: from PostgreSQL 16 on, a role without SUPERUSER has it of each role that it
-- made. The owner of the schema embedsidecar is trusted, and who may act as it.
-- @roles: their names; those that are not there do not count. @trusted: whom the configuration names.
-- Rows: one at most: the role, and who. Locks: none.
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
