-- lost_functions: of the functions that a stored pipeline's expressions call by name, those that this session no longer
-- trusts (see functions_of_strangers): no function of that name belongs to a trusted role or to the owner of one of the
-- tables, or its schema belongs to an untrusted role. Other functions of the name do not count: otherwise anyone who
-- may create functions there could stop the pipeline.
-- @functions: their names, quoted. @tables: of the pipeline. @trusted: the roles that the configuration names.
-- Rows: at most one: the function, what is wrong, and the role. Reads only pg_catalog. Locks: none.
WITH called AS (
    SELECT u.name, n.nspname, p.proowner, CASE pg_get_userbyid(n.nspowner) WHEN 'pg_database_owner'
               THEN (SELECT d.datdba FROM pg_database AS d WHERE d.datname = current_database())
               ELSE n.nspowner END AS nspowner
    FROM   unnest(@functions::text[]) AS u (name) CROSS JOIN LATERAL parse_ident(u.name) AS part
           JOIN pg_namespace AS n ON n.nspname = part[1]
           JOIN pg_proc AS p ON p.proname = part[2] AND p.pronamespace = n.oid
    WHERE  p.oid >= 16384),
friend AS (
    SELECT r.oid FROM pg_roles AS r
    WHERE  r.oid IN (SELECT c.proowner FROM called AS c UNION SELECT c.nspowner FROM called AS c)
        AND ((TRUSTED r) OR r.oid IN (SELECT c.relowner FROM pg_class AS c WHERE c.oid = ANY (@tables::oid[]))))
SELECT c.name AS thing, CASE WHEN c.nspowner IN (SELECT f.oid FROM friend AS f) THEN 'which belongs to role'
           ELSE format('in schema %I, whose owner may put another in its place: role', c.nspname) END AS problem,
       min(pg_get_userbyid(CASE WHEN c.nspowner IN (SELECT f.oid FROM friend AS f) THEN c.proowner ELSE c.nspowner END)
           ::text) AS owner
FROM   called AS c
GROUP  BY c.name, c.nspname, c.nspowner
HAVING NOT bool_or(c.proowner IN (SELECT f.oid FROM friend AS f)) OR c.nspowner NOT IN (SELECT f.oid FROM friend AS f)
LIMIT  1;
