-- untrusted_owners: of some relations and functions, those whose owner, or whose schema's owner, this session does not
-- trust (see strangers): reading or calling them runs the owner's code.
-- @relations: their names, quoted. @functions: SCHEMA.NAME. @trusted: the roles that the configuration names.
-- Rows: the first few. Locks: none.
WITH found AS (
    SELECT 'relation ' || c.oid::regclass::text AS thing, c.relnamespace AS schema, c.relowner AS owner
    FROM   pg_class AS c
    WHERE  c.oid IN (SELECT to_regclass(r.name) FROM unnest(@relations::text[]) AS r (name))
    UNION ALL
    SELECT 'function ' || p.oid::regprocedure::text, p.pronamespace, p.proowner
    FROM   pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
    WHERE  n.nspname || '.' || p.proname = ANY (@functions::text[])),
owner AS (
    SELECT f.thing, f.owner FROM found AS f
    UNION
    SELECT 'schema ' || quote_ident(n.nspname), CASE pg_get_userbyid(n.nspowner) WHEN 'pg_database_owner'
               THEN (SELECT d.datdba FROM pg_database AS d WHERE d.datname = current_database()) ELSE n.nspowner END
    FROM   found AS f JOIN pg_namespace AS n ON n.oid = f.schema)
SELECT o.thing, 'belongs to' AS problem, r.rolname::text AS owner
FROM   owner AS o JOIN pg_roles AS r ON r.oid = o.owner
WHERE  NOT (TRUSTED r)
ORDER  BY o.thing LIMIT 5;
