-- marked_views: the views that read from a table and whose comment begins with ours.
-- @mark: its beginning.
-- Rows: one each, quoted. Locks: none.
SELECT DISTINCT quote_ident(n.nspname) || '.' || quote_ident(v.relname) AS name
FROM   pg_depend AS d JOIN pg_rewrite AS r ON r.oid = d.objid JOIN pg_class AS v ON v.oid = r.ev_class
    JOIN pg_namespace AS n ON n.oid = v.relnamespace
WHERE  d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = @table
    AND v.relkind = 'v'
       AND starts_with(coalesce(obj_description(v.oid, 'pg_class'), ''), @mark)
ORDER BY 1;
