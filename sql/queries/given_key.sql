-- given_key: the columns of a table that refer to the key of another by a foreign key, in the order of that key.
-- Rows: one per foreign key. Locks: none. Index: pg_constraint_conrelid_contypid_conname_index.
SELECT (SELECT array_agg(a.attname::text ORDER BY array_position(@keys::text[], b.attname::text))
        FROM   unnest(c.conkey, c.confkey) AS p (own, other)
               JOIN pg_attribute AS a ON a.attrelid = c.conrelid AND a.attnum = p.own
               JOIN pg_attribute AS b ON b.attrelid = c.confrelid AND b.attnum = p.other) AS columns
FROM   pg_constraint AS c
WHERE  c.contype = 'f' AND c.conrelid = @given::oid AND c.confrelid = @source::oid
       AND (SELECT array_agg(b.attname::text ORDER BY array_position(@keys::text[], b.attname::text))
            FROM   unnest(c.confkey) AS p (other)
                   JOIN pg_attribute AS b ON b.attrelid = c.confrelid AND b.attnum = p.other) = @keys::text[]
ORDER  BY c.conname;
