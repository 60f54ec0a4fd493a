-- hidden_by_policies: the first of @tables (which a text is made from) and their embedding table whose row level
-- security does not apply to the current role. And in a superuser's session that searches as another role: a policy of
-- these tables that runs code of a role which is neither a superuser nor trusted, or reads its table. Such code could
-- return to the role of the session.
-- @into: the embedding table as in a statement; '' if there is none. @trusted: the roles that the configuration names.
-- Rows: one, NULL when there is none. Locks: none.
WITH looked AS (
    SELECT c.oid FROM pg_class AS c
    WHERE  (c.oid = ANY (@tables::oid[]) OR c.oid = to_regclass(nullif(@into, ''))) AND c.relrowsecurity)
SELECT (SELECT min(l.oid::regclass::text) FROM looked AS l WHERE NOT row_security_active(l.oid)),
       (SELECT min(format('policy %I on %s runs code of role %I', y.polname, l.oid::regclass, o.rolname))
        FROM   looked AS l JOIN pg_policy AS y ON y.polrelid = l.oid
               JOIN pg_depend AS d ON d.classid = 'pg_policy'::regclass AND d.objid = y.oid
               JOIN LATERAL (
                   SELECT f.proowner FROM pg_proc AS f
                   WHERE  d.refclassid = 'pg_proc'::regclass AND f.oid = d.refobjid
                          OR d.refclassid = 'pg_operator'::regclass
                              AND f.oid = (SELECT p.oprcode FROM pg_operator AS p WHERE p.oid = d.refobjid)
                   UNION ALL
                   SELECT c.relowner FROM pg_class AS c
                   WHERE  d.refclassid = 'pg_class'::regclass AND c.oid = d.refobjid) AS w (owner) ON true
               JOIN pg_roles AS o ON o.oid = w.owner
        WHERE  NOT o.rolsuper AND o.rolname <> ALL (@trusted::text[]) AND current_user <> session_user
               AND EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = session_user AND r.rolsuper));
