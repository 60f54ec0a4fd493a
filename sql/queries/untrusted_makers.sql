-- untrusted_makers: of some schemas, those in which a role that this session does not trust (see untrusted_owners) may
-- create: where such a schema is in the search_path, its function may be called in the place of another. Roles that
-- cannot log in count by those who may act as them.
-- @schemas: their names. @trusted: the roles that the configuration names.
-- Rows: the first few. Locks: none.
WITH maker AS (
    SELECT n.nspname, n.nspowner AS role FROM pg_namespace AS n WHERE n.nspname = ANY (@schemas::text[])
    UNION
    SELECT n.nspname, a.grantee FROM pg_namespace AS n CROSS JOIN aclexplode(n.nspacl) AS a
    WHERE  n.nspname = ANY (@schemas::text[]) AND a.privilege_type = 'CREATE')
SELECT DISTINCT 'functions in schema ' || quote_ident(m.nspname) AS thing, 'may be made by' AS problem,
    r.rolname::text AS owner
FROM   (SELECT CASE WHEN current_setting('server_version_num')::integer < 160000
            THEN 'MEMBER' ELSE 'USAGE, SET, MEMBER WITH ADMIN OPTION' END AS act) AS may
       CROSS JOIN maker AS m JOIN pg_roles AS r ON m.role = 0 OR pg_has_role(r.oid, m.role, may.act)
WHERE  r.rolcanlogin AND NOT (TRUSTED r)
ORDER  BY thing, owner LIMIT 5;
