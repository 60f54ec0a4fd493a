-- inherited_rights: what default privileges granted to others on new objects of the schema embedsidecar.
-- Parameters: @before, the oids of relations and routines that existed before, and of the schema.
-- Rows: statements that revoke all of it. Locks: none.
SELECT format('REVOKE ALL ON %s %s FROM %s', o.kind, o.name, CASE a.grantee WHEN 0 THEN 'PUBLIC'
    ELSE a.grantee::regrole::text END)
FROM (
    SELECT c.oid, CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END AS kind, c.oid::regclass::text AS name,
           c.relacl AS acl, c.relowner AS owner
    FROM   pg_catalog.pg_class AS c
    WHERE  c.relnamespace = 'embedsidecar'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'S')
    UNION ALL
    SELECT p.oid, 'ROUTINE', p.oid::regprocedure::text, p.proacl, p.proowner
    FROM   pg_catalog.pg_proc AS p WHERE p.pronamespace = 'embedsidecar'::regnamespace
    UNION ALL
    SELECT n.oid, 'SCHEMA', n.nspname::text, n.nspacl, n.nspowner
    FROM   pg_catalog.pg_namespace AS n WHERE n.nspname = 'embedsidecar') AS o
CROSS JOIN LATERAL pg_catalog.aclexplode(o.acl) AS a
WHERE  o.oid <> ALL (@before::oid[]) AND a.grantee <> o.owner
GROUP  BY o.kind, o.name, a.grantee;
