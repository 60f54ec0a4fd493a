-- embedding_key: the primary key of an embedding table, and its comment.
-- Rows: one. Locks: none.
SELECT coalesce((SELECT array_agg(a.attname::text ORDER BY n)
                 FROM   pg_index AS i CROSS JOIN LATERAL generate_series(0, i.indnkeyatts - 1) AS n
                        JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[n]
                 WHERE  i.indrelid = @table AND i.indisprimary), '{}') AS key,
       coalesce(obj_description(@table, 'pg_class'), '') AS comment;
