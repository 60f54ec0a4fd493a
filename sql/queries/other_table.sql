-- other_table: what a table's number means here, where that is not the table of this name.
-- Rows: one: another table, ready for a statement; 'nothing' when the number is none's and the name is there; else
-- empty. Locks: none.
SELECT coalesce((SELECT format('%I.%I', n.nspname, c.relname)
                 FROM   pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                 WHERE  c.oid = @oid AND (n.nspname, c.relname) <> (@schema, @table)),
                (SELECT 'nothing'
                 FROM   pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                 WHERE  (n.nspname, c.relname) = (@schema, @table) AND NOT EXISTS (SELECT FROM pg_class AS o
                     WHERE o.oid = @oid)), '');
