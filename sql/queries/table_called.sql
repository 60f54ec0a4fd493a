-- table_called: the table of a name, ready for a statement.
-- Rows: one, empty when there is none. Locks: none.
SELECT coalesce((SELECT format('%I.%I', n.nspname, c.relname)
                 FROM   pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                 WHERE  n.nspname = @schema AND c.relname = @table), '');
