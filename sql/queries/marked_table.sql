-- marked_table: a table by its name, and whether its comment begins with ours.
-- @mark: how it begins.
-- Rows: at most one. Locks: none.
SELECT c.oid, starts_with(coalesce(obj_description(c.oid, 'pg_class'), ''), @mark) AS ours
FROM   pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE  n.nspname = @schema AND c.relname = @table;
