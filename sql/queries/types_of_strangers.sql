-- types_of_strangers: the types in columns of tables that belong to a role which this session does not trust (see
-- strangers): casts of such a type, and the constraints of a domain, are code that runs with the rights of the role
-- whose statement needs them. A domain as the type of a column (kind d, whole) is read and compared as its base type,
-- whose owner counts: its constraints run only where an expression makes an array of the values.
-- A column whose domain is over a type that is not built in is compared by the operators of that type, which are found
-- by name: an untrusted role that may create operators in their schema could create one that fits the domain better.
-- Rows: one for each column and type, or schema ('operator'), with the owner, or a role that may create operators there
-- ('': everyone). kind: pg_type.typtype; whole: it is the column's own type, or the base of it, not a part of that.
-- casts: an untrusted role's function is a cast from it or to it. Reads only pg_catalog. Locks: none.
WITH RECURSIVE friend AS (
    SELECT r.oid FROM pg_roles AS r WHERE (TRUSTED r)),
used AS (
    SELECT a.attrelid, a.attname, a.atttypid AS typ, true AS whole FROM pg_attribute AS a
    WHERE  a.attrelid = ANY (@tables::oid[]) AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384
    UNION
    SELECT u.attrelid, u.attname, m.typ, u.whole AND t.typtype = 'd' FROM used AS u JOIN pg_type AS t ON t.oid = u.typ
        CROSS JOIN LATERAL (
        SELECT t.typelem UNION ALL SELECT t.typbasetype
        UNION ALL SELECT f.atttypid FROM pg_attribute AS f WHERE t.typtype = 'c' AND f.attrelid = t.typrelid
            AND f.attnum > 0 AND NOT f.attisdropped
        UNION ALL SELECT g.rngsubtype FROM pg_range AS g WHERE g.rngtypid = t.oid) AS m (typ)
    WHERE m.typ >= 16384),
known AS (
    SELECT f.oid FROM friend AS f
    UNION SELECT r.oid FROM pg_roles AS r, pg_database AS d
    WHERE  r.rolname = 'pg_database_owner' AND d.datname = current_database()
        AND d.datdba IN (SELECT f.oid FROM friend AS f))
SELECT u.attrelid AS "table", u.attname::text AS "column", format_type(t.oid, -1) AS type, t.typtype::text AS kind,
    u.whole, pg_get_userbyid(t.typowner)::text AS owner,
       EXISTS (SELECT FROM pg_cast AS c JOIN pg_proc AS f ON f.oid = c.castfunc
               WHERE  t.oid IN (c.castsource, c.casttarget)
                   AND f.proowner NOT IN (SELECT r.oid FROM friend AS r)) AS casts
FROM   used AS u JOIN pg_type AS t ON t.oid = u.typ
WHERE  t.typowner NOT IN (SELECT r.oid FROM friend AS r)
UNION ALL
SELECT u.attrelid, u.attname::text, quote_ident(n.nspname), 'operator', false,
       coalesce(pg_get_userbyid(nullif(m.role, 0))::text, ''), false
FROM   used AS u JOIN pg_type AS t ON t.oid = u.typ AND t.typtype <> 'd'
       JOIN pg_attribute AS a ON a.attrelid = u.attrelid AND a.attname = u.attname AND a.atttypid <> u.typ
       JOIN pg_opclass AS o ON o.opcintype = t.oid AND o.opcdefault
           AND o.opcmethod = (SELECT b.oid FROM pg_am AS b WHERE b.amname = 'btree')
       JOIN pg_amop AS ao ON ao.amopfamily = o.opcfamily AND ao.amoplefttype = t.oid AND ao.amoprighttype = t.oid
           AND ao.amopstrategy = 3
       JOIN pg_operator AS e ON e.oid = ao.amopopr JOIN pg_namespace AS n ON n.oid = e.oprnamespace
       CROSS JOIN LATERAL (SELECT n.nspowner
           UNION SELECT g.grantee FROM aclexplode(n.nspacl) AS g WHERE g.privilege_type = 'CREATE') AS m (role)
WHERE  u.whole AND m.role NOT IN (SELECT k.oid FROM known AS k)
ORDER  BY 1, 2, 3;
