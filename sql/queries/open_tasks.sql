-- open_tasks: how many tasks of a pipeline's low lane are open, those that wait for another try too, counted up to @max. @after is a
-- place before which nothing waits, @due_after a time before which nothing is due.
-- Rows: one. Locks: none. Index: task_todo_idx, task_retry_idx.
SELECT (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t
            WHERE t.state = 'todo' AND t.pipeline_id = @pipeline_id AND t.lane = 0 AND t.seq > @after LIMIT @max) AS t)
     + (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t
            WHERE t.state = 'retrying' AND t.pipeline_id = @pipeline_id AND t.lane = 0 AND t.due_at > @due_after LIMIT @max) AS t);
