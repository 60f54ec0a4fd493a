-- hidden_columns: which of some columns of a table the current role may not read, if it may read others of the table.
-- Rows: a name each, in the order of the table. Locks: none.
SELECT a.attname::text
FROM   pg_attribute AS a
WHERE  a.attrelid = @table AND a.attname = ANY (@columns::text[])
    AND NOT has_column_privilege(a.attrelid, a.attnum, 'SELECT')
       AND has_any_column_privilege(a.attrelid, 'SELECT')
ORDER BY a.attnum;
