-- hash_indexed: whether an embedding table has an index that finds every text by its hash.
-- Rows: one. Locks: none.
SELECT EXISTS (SELECT FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
               WHERE  i.indrelid = @table AND a.attname = 'text_hash' AND i.indisvalid AND i.indpred IS NULL);
