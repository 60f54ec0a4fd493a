-- functions_of_strangers: of the functions that an expression calls, those that belong to a role which this session
-- does not trust (see strangers) and which does not own the table. Also those that such a role could replace with
-- another function: the owner of the schema, the owner of an extension, who may drop it, or anyone, if an argument is
-- not exactly of the function's type. Functions called as operators are found by the operator's name and schema.
-- @functions, @counts, @loose, @operators: each function, its number of arguments (-1: no call by name), whether an
-- argument is converted, and the operator that it is called as, or 0.
-- Rows: at most one: the function, what is wrong, the role ('' for PUBLIC), hints, one per line. Reads only pg_catalog.
-- Locks: none.
WITH friend AS (
    SELECT r.oid FROM pg_roles AS r
    WHERE  (TRUSTED r) OR r.oid = (SELECT c.relowner FROM pg_class AS c WHERE c.oid = @table)),
known AS (
    SELECT f.oid FROM friend AS f
    UNION SELECT r.oid FROM pg_roles AS r, pg_database AS d
    WHERE  r.rolname = 'pg_database_owner' AND d.datname = current_database()
        AND d.datdba IN (SELECT f.oid FROM friend AS f)),
called AS (
    SELECT CASE WHEN o.oid IS NULL THEN p.oid::regprocedure::text ELSE 'operator ' || o.oid::regoperator::text END
               AS thing,
           CASE WHEN o.oid IS NULL THEN 'pg_proc'::regclass ELSE 'pg_operator' END AS class,
           coalesce(o.oid, p.oid) AS oid, coalesce(o.oprowner, p.proowner) AS owner,
           n.oid AS schema, n.nspname, n.nspowner, n.nspacl,
           c.args >= 0 AND (c.loose OR c.args <> p.pronargs AND p.prokind <> 'a' OR p.provariadic <> 0 OR EXISTS (
               SELECT FROM unnest(p.proargtypes) AS a (typ) JOIN pg_type AS t ON t.oid = a.typ WHERE t.typtype = 'p'))
           AS loose
    FROM   (SELECT * FROM unnest(@functions::oid[], @counts::integer[], @loose::boolean[], @operators::oid[])
            UNION ALL
            SELECT m.oid, -1, false, 0 FROM pg_aggregate AS a CROSS JOIN LATERAL unnest(ARRAY[a.aggtransfn,
                a.aggfinalfn, a.aggcombinefn, a.aggserialfn, a.aggdeserialfn, a.aggmtransfn, a.aggminvtransfn,
                a.aggmfinalfn]::oid[]) AS m (oid)
            WHERE  a.aggfnoid = ANY (@functions::oid[])) AS c (oid, args, loose, operator)
           JOIN pg_proc AS p ON p.oid = c.oid LEFT JOIN pg_operator AS o ON o.oid = c.operator
           JOIN pg_namespace AS n ON n.oid = coalesce(o.oprnamespace, p.pronamespace)
    WHERE  coalesce(o.oid, p.oid) >= 16384)
SELECT c.thing, 'which belongs to role' AS problem, pg_get_userbyid(c.owner)::text AS owner, '' AS hint
FROM   called AS c WHERE c.owner NOT IN (SELECT k.oid FROM known AS k)
UNION ALL
SELECT c.thing, format('in schema %I, whose owner may put another in its place: role', c.nspname),
       CASE pg_get_userbyid(c.nspowner) WHEN 'pg_database_owner' THEN (SELECT pg_get_userbyid(d.datdba)
           FROM pg_database AS d WHERE d.datname = current_database()) ELSE pg_get_userbyid(c.nspowner) END::text, ''
FROM   called AS c WHERE c.nspowner NOT IN (SELECT k.oid FROM known AS k)
UNION ALL
SELECT c.thing, format('of extension %I, whose owner may put another in its place: role', e.extname),
       pg_get_userbyid(e.extowner)::text, ''
FROM   called AS c JOIN pg_depend AS d ON d.classid = c.class AND d.objid = c.oid AND d.deptype = 'e'
       JOIN pg_extension AS e ON e.oid = d.refobjid
WHERE  e.extowner NOT IN (SELECT k.oid FROM known AS k) AND has_schema_privilege(e.extowner, c.schema, 'CREATE')
UNION ALL
SELECT c.thing, format('though not with arguments of its very types, and another of the name in '
       'schema %I would be called in its place, which may be made by role', c.nspname),
       CASE m.role WHEN 0 THEN '' ELSE pg_get_userbyid(m.role) END,
       format(E'cast its arguments to the types that it takes, as in title::text\nor let nobody else make functions '
           'there: REVOKE CREATE ON SCHEMA %I FROM %s;', c.nspname, CASE m.role WHEN 0 THEN 'PUBLIC'
           ELSE quote_ident(pg_get_userbyid(m.role)) END)
FROM   called AS c CROSS JOIN LATERAL (
       SELECT c.nspowner
       UNION SELECT a.grantee FROM aclexplode(c.nspacl) AS a WHERE a.privilege_type = 'CREATE') AS m (role)
WHERE  c.loose AND m.role NOT IN (SELECT k.oid FROM known AS k)
LIMIT 1;
