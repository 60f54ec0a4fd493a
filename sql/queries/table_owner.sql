-- table_owner: an owner of a table, or of its partitions, heirs and parents, who is no superuser and is not trusted,
-- where the session is a superuser's. Parents count: their owner makes indexes on partitions of others.
-- @table: its quoted name. @trusted: whom the configuration names.
-- Rows: at most one: the session's role, the table and its owner. Locks: none.
WITH RECURSIVE below AS (
    SELECT @table::text::regclass::oid AS relid
    UNION
    SELECT h.inhrelid FROM below AS b JOIN pg_inherits AS h ON h.inhparent = b.relid),
above AS (
    SELECT @table::text::regclass::oid AS relid
    UNION
    SELECT h.inhparent FROM above AS a JOIN pg_inherits AS h ON h.inhrelid = a.relid)
SELECT r.rolname::text, c.oid::regclass::text, o.rolname::text
FROM   pg_roles AS r, pg_class AS c JOIN pg_roles AS o ON o.oid = c.relowner
WHERE  r.rolsuper AND r.rolname IN (session_user, current_user) AND NOT o.rolsuper
    AND o.rolname <> ALL (@trusted::text[])
       AND c.oid IN (SELECT relid FROM below UNION SELECT relid FROM above)
ORDER  BY c.oid <> @table::text::regclass, 2
LIMIT  1;
