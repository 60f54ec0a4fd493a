-- unreadable_columns: the columns of a table that the current role may not read.
-- Rows: a name each, in the order of the table. Locks: none.
SELECT a.attname::text
FROM   pg_attribute AS a
WHERE  a.attrelid = @table AND a.attnum > 0 AND NOT a.attisdropped
    AND NOT has_column_privilege(a.attrelid, a.attnum, 'SELECT')
ORDER BY a.attnum;
