-- without_task: those of some keys that have no task in a pipeline.
-- Rows: keys. Locks: none. Index: unique key.
SELECT k.row_key
FROM   unnest(@row_keys::text[]) AS k (row_key)
WHERE  NOT EXISTS (SELECT FROM embedsidecar.task AS t WHERE t.pipeline_id = @pipeline_id
    AND t.row_key = k.row_key COLLATE "C" OFFSET 0);
