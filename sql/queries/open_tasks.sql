-- open_tasks: how many tasks of a pipeline's most patient lane wait, counted up to @max.
-- Rows: one. Locks: none. Index: task_todo_idx.
SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'todo' AND t.pipeline_id = @pipeline_id AND t.lane = 0 LIMIT @max) AS t;
