-- may_write_table: whether a role may read and write a whole table.
-- Rows: one. Locks: none.
SELECT has_table_privilege(@role, @table::oid, 'SELECT') AND has_table_privilege(@role, @table::oid, 'INSERT')
       AND has_table_privilege(@role, @table::oid, 'UPDATE') AND has_table_privilege(@role, @table::oid, 'DELETE');
