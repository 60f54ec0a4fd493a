-- ledger_page: the next keys of a pipeline's ledger, in the ledger's order.
-- Rows: up to @max keys. Locks: none. Index: primary key.
SELECT l.row_key
FROM   embedsidecar.ledger AS l
WHERE  l.pipeline_id = @pipeline_id AND (@after::text IS NULL OR l.row_key > @after::text COLLATE "C")
ORDER BY l.row_key
LIMIT  @max;
