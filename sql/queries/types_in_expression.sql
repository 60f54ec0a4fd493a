-- types_in_expression: the types that an expression names or has values of and that belong to a role which this session
-- does not trust (see strangers) and which does not own the table @table: their domains, and casts that are created
-- later, are code that runs with the rights of the role that evaluates it.
-- @schemas, @names: what is named. @rule: the rule of a view of it, 0: there is none; @functions: what it calls.
-- Rows: at most one, what is wrong, and the owner. Reads only pg_catalog. Locks: none.
WITH RECURSIVE friend AS (
    SELECT r.oid FROM pg_roles AS r
    WHERE  (TRUSTED r) OR r.oid = (SELECT c.relowner FROM pg_class AS c WHERE c.oid = @table)),
used AS (
    SELECT n.typ FROM (
        SELECT t.oid FROM unnest(@schemas::text[], @names::text[]) AS w (schema, name)
               JOIN pg_namespace AS s ON s.nspname = w.schema
               JOIN pg_type AS t ON t.typnamespace = s.oid AND t.typname = w.name
        UNION SELECT d.refobjid FROM pg_depend AS d
            WHERE d.classid = 'pg_rewrite'::regclass AND d.objid = @rule AND d.refclassid = 'pg_type'::regclass
        UNION SELECT a.typ FROM pg_proc AS p CROSS JOIN LATERAL (
                SELECT p.prorettype UNION SELECT unnest(p.proargtypes)) AS a (typ)
            WHERE p.oid = ANY (@functions)) AS n (typ)
    WHERE n.typ >= 16384
    UNION
    SELECT m.typ FROM used AS u JOIN pg_type AS t ON t.oid = u.typ CROSS JOIN LATERAL (
        SELECT t.typelem UNION ALL SELECT t.typbasetype
        UNION ALL SELECT f.atttypid FROM pg_attribute AS f WHERE t.typtype = 'c' AND f.attrelid = t.typrelid
            AND f.attnum > 0 AND NOT f.attisdropped
        UNION ALL SELECT g.rngsubtype FROM pg_range AS g WHERE g.rngtypid = t.oid) AS m (typ)
    WHERE m.typ >= 16384)
SELECT format_type(t.oid, -1) AS thing, 'which belongs to' AS problem, pg_get_userbyid(t.typowner)::text AS owner
FROM   used AS u JOIN pg_type AS t ON t.oid = u.typ
WHERE  t.typowner NOT IN (SELECT f.oid FROM friend AS f)
UNION ALL
SELECT format_type(t.oid, -1), 'in whose place another may be put by',
       CASE pg_get_userbyid(s.nspowner) WHEN 'pg_database_owner' THEN (SELECT pg_get_userbyid(d.datdba)
           FROM pg_database AS d WHERE d.datname = current_database()) ELSE pg_get_userbyid(s.nspowner) END::text
FROM   unnest(@schemas::text[], @names::text[]) AS w (schema, name) JOIN pg_namespace AS s ON s.nspname = w.schema
       JOIN pg_type AS t ON t.typnamespace = s.oid AND t.typname = w.name
WHERE  t.oid >= 16384 AND s.nspowner NOT IN (
           SELECT f.oid FROM friend AS f
           UNION SELECT r.oid FROM pg_roles AS r, pg_database AS d
           WHERE  r.rolname = 'pg_database_owner' AND d.datname = current_database()
                  AND d.datdba IN (SELECT f.oid FROM friend AS f))
LIMIT  1;
