-- table_owners: an owner of each of some tables, or of its partitions, heirs and parents, who is no superuser and not
-- trusted, where the session is a superuser's. Parents count: their owner makes indexes on partitions of others.
-- @tables: their numbers. @trusted: whom the configuration names.
-- Rows: at most one for each: the session's role, the table and its owner. Locks: none.
WITH RECURSIVE below AS (
    SELECT t.oid AS root, t.oid AS relid FROM unnest(@tables::oid[]) AS t (oid)
    UNION
    SELECT b.root, h.inhrelid FROM below AS b JOIN pg_inherits AS h ON h.inhparent = b.relid),
above AS (
    SELECT t.oid AS root, t.oid AS relid FROM unnest(@tables::oid[]) AS t (oid)
    UNION
    SELECT a.root, h.inhparent FROM above AS a JOIN pg_inherits AS h ON h.inhrelid = a.relid)
SELECT DISTINCT ON (f.root) f.root AS "table", r.rolname::text AS role, c.oid::regclass::text AS part,
    o.rolname::text AS owner
FROM   (SELECT * FROM below UNION SELECT * FROM above) AS f JOIN pg_class AS c ON c.oid = f.relid
       JOIN pg_roles AS o ON o.oid = c.relowner CROSS JOIN pg_roles AS r
WHERE  r.rolsuper AND r.rolname IN (session_user, current_user) AND NOT o.rolsuper
    AND o.rolname <> ALL (@trusted::text[])
ORDER  BY f.root, c.oid <> f.root, 3;
