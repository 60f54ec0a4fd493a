-- reset_cursor: the oldest place still waiting in each lane of a pipeline: where the next claims may start.
-- Rows: one: the oldest place of lanes 0 to 3, NULL where a lane is empty, and whether a task waits to be tried alone.
-- Index: task_todo_idx, task_alone_idx.
SELECT ARRAY(SELECT (SELECT t.seq FROM embedsidecar.task AS t
                     WHERE t.state = 'todo' AND t.pipeline_id = @pipeline_id AND t.lane = l.lane
                     ORDER BY t.seq LIMIT 1)
             FROM generate_series(0, 3) AS l (lane) ORDER BY l.lane) AS oldest,
       EXISTS (SELECT FROM embedsidecar.task AS t WHERE t.state = 'todo' AND t.losses >= 2 AND t.pipeline_id = @pipeline_id) AS alone;
