-- unknown_keys: which of @row_keys pipeline @pipeline_id has never had to do with: no entry in the ledger, and no open task.
-- Rows: the keys, in their order. Locks: none. Index: primary keys of ledger and task.
SELECT k.row_key
FROM   unnest(@row_keys::text[]) WITH ORDINALITY AS k(row_key, place)
WHERE  NOT EXISTS (SELECT FROM embedsidecar.ledger AS l WHERE l.pipeline_id = @pipeline_id AND l.row_key = k.row_key)
AND    NOT EXISTS (SELECT FROM embedsidecar.task AS t WHERE t.pipeline_id = @pipeline_id AND t.row_key = k.row_key)
ORDER  BY k.place;
