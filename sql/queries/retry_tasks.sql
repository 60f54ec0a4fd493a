-- retry_tasks: open dead letters and rows that wait for another try again, as a change of the row would, a portion at a time. The stream may
-- want the same rows: the portion is over at once, and nothing is locked in an order of its own, since nobody is waited for.
-- @row_keys are those meant; NULL: all. @until is a place: what failed again meanwhile is behind it.
-- Rows: none; as many are changed as were opened, 0 when all are. Locks: the tasks, SKIP LOCKED. Index: task_failed_idx, task_retry_idx.
UPDATE embedsidecar.task AS t
SET    state = 'todo', seq = nextval('embedsidecar.task_seq'), attempt = 0, losses = 0, lost_leases = 0, waits_since = NULL, due_at = NULL,
       error_class = NULL, error_code = NULL, error_message = NULL
WHERE  t.task_id = ANY (ARRAY(SELECT w.task_id FROM embedsidecar.task AS w
                              WHERE w.pipeline_id = @pipeline_id AND w.state = 'failed' AND w.seq <= @until
                                AND (@row_keys::text[] IS NULL OR w.row_key = ANY (@row_keys)) LIMIT 2000 FOR UPDATE SKIP LOCKED)
                     || ARRAY(SELECT w.task_id FROM embedsidecar.task AS w
                              WHERE w.pipeline_id = @pipeline_id AND w.state = 'retrying' AND w.seq <= @until
                                AND (@row_keys::text[] IS NULL OR w.row_key = ANY (@row_keys)) LIMIT 2000 FOR UPDATE SKIP LOCKED));
