-- marked_column: a column of a table, where its table is now, and whether its comment begins with ours.
-- @mark: how it begins.
-- Rows: at most one. Locks: none.
SELECT n.nspname::text AS schema, c.relname::text AS table, c.oid,
    starts_with(coalesce(col_description(c.oid, a.attnum), ''), @mark) AS ours
FROM   pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace JOIN pg_attribute AS a ON a.attrelid = c.oid
WHERE  c.oid = @table AND a.attname = @column AND NOT a.attisdropped;
