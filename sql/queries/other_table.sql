-- other_table: the table that a number stands for here, if it is not the table of this name.
-- Rows: one: the other table, quoted for a statement; 'nothing' if the number belongs to no table and the name exists;
-- otherwise empty. Locks: none.
SELECT coalesce((SELECT format('%I.%I', n.nspname, c.relname)
                 FROM   pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                 WHERE  c.oid = @oid AND (n.nspname, c.relname) <> (@schema, @table)),
                (SELECT 'nothing'
                 FROM   pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                 WHERE  (n.nspname, c.relname) = (@schema, @table) AND NOT EXISTS (SELECT FROM pg_class AS o
                     WHERE o.oid = @oid)), '');
