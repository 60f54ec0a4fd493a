-- may_use_columns: whether a role may read some columns of a table and update others.
-- @read: names; NULL: all. @write: names; NULL: none.
-- Rows: one. Locks: none.
SELECT coalesce(bool_and(has_column_privilege(@role, @table::oid, a.attnum, 'SELECT'))
                    FILTER (WHERE @read::text[] IS NULL OR a.attname = ANY (@read)), true)
       AND coalesce(bool_and(has_column_privilege(@role, @table::oid, a.attnum, 'UPDATE')) FILTER
           (WHERE a.attname = ANY (@write)), true)
FROM   pg_attribute AS a
WHERE  a.attrelid = @table AND a.attnum > 0 AND NOT a.attisdropped;
