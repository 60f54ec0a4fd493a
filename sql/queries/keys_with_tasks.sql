-- keys_with_tasks: which of some rows have a task in any state: their vectors may be of older texts.
-- Rows: one, with the keys. Locks: none. Index: task_row_key_pipeline_id_key.
SELECT coalesce(array_agg(t.row_key), '{}') FROM embedsidecar.task AS t
WHERE  t.pipeline_id = @pipeline_id AND t.row_key = ANY (@keys);
