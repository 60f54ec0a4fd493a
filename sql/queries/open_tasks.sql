-- open_tasks: how many tasks of a pipeline's low lane are open, counted up to @max, with the retries that are due
-- within an hour: rows may be scheduled for later. Its turn has the place before which no task waits, and nothing is
-- due before @due_after.
-- Rows: one. Locks: none. Index: task_todo_idx, task_retry_idx.
SELECT (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t
            WHERE t.state = 'todo' AND t.pipeline_id = @pipeline_id AND t.lane = 0
                AND t.seq > coalesce((SELECT f.passed[1] FROM embedsidecar.turn AS f
                WHERE f.pipeline_id = @pipeline_id), 0) LIMIT @max) AS t)
     + (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t
            WHERE t.state = 'retrying' AND t.pipeline_id = @pipeline_id AND t.lane = 0 AND t.due_at > @due_after
                AND t.due_at < now() + interval '1 hour' LIMIT @max) AS t);
