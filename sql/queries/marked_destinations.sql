-- marked_destinations: the tables and columns, in all schemas, whose comment begins with ours. Any role can give its
-- own table such a comment. owned: the session has the rights of the owner.
-- @mark: its beginning.
-- Rows: one each; column: '' for a table. Locks: none.
SELECT n.nspname::text AS schema, c.relname::text AS table, coalesce(a.attname::text, '') AS column, c.oid,
    d.description AS mark, pg_has_role(c.relowner, 'USAGE') AS owned
FROM   pg_description AS d JOIN pg_class AS c ON c.oid = d.objoid JOIN pg_namespace AS n ON n.oid = c.relnamespace
       LEFT JOIN pg_attribute AS a ON d.objsubid > 0 AND a.attrelid = c.oid AND a.attnum = d.objsubid
WHERE  d.classoid = 'pg_class'::regclass AND c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
    AND starts_with(d.description, @mark)
ORDER BY 1, 2, 3;
