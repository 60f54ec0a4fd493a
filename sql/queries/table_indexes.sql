-- table_indexes: the indexes of a table that cover every row: their columns, and whether they are unique.
-- Rows: one for each. Locks: none.
SELECT ARRAY(SELECT coalesce(a.attname::text, '') FROM generate_series(0, i.indnkeyatts - 1) AS n
           LEFT JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[n] AND a.attnum > 0
           ORDER BY n) AS columns,
       i.indisunique AND i.indimmediate AS "unique"
FROM   pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid JOIN pg_am AS m ON m.oid = c.relam
WHERE  i.indrelid = @table AND i.indisvalid AND i.indpred IS NULL AND m.amname IN ('btree', 'hash');
