-- may_search: whether the role may search by SQL, and which groups may.
-- Rows: one. Locks: none.
SELECT coalesce(bool_or(has_function_privilege(f.oid, 'EXECUTE') AND has_schema_privilege(n.oid, 'USAGE')), false),
       coalesce((SELECT array_agg(r.rolname::text ORDER BY r.rolcanlogin, r.rolname)
                 FROM   pg_proc AS p CROSS JOIN aclexplode(p.proacl) AS a JOIN pg_roles AS r ON r.oid = a.grantee
                 WHERE  p.pronamespace = min(n.oid) AND p.proname = 'search' AND a.privilege_type = 'EXECUTE'
                        AND a.grantee <> p.proowner),
           '{}')
FROM   pg_namespace AS n JOIN pg_proc AS f ON f.pronamespace = n.oid AND f.proname = 'search'
WHERE  n.nspname = 'embedsidecar';
