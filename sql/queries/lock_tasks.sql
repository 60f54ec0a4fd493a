-- lock_tasks: fence a write-back: lock those of my tasks that I still hold, and tell whether their row changed since.
-- A worker of an older generation of the pipeline holds nothing any more; @generation 0 does not ask.
-- Rows: task_id and gen of the tasks still leased under @token. Locks: those rows. Index: primary key.
SELECT t.task_id, t.gen
FROM   embedsidecar.task AS t
WHERE  t.task_id = ANY (@task_ids::bigint[]) AND t.lease_token = @token AND t.state = 'in_progress'
       AND (@generation::integer = 0
            OR EXISTS (SELECT FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = t.pipeline_id AND p.generation = @generation::integer))
ORDER BY t.row_key -- as enqueue_tasks does: two orders would be a deadlock
FOR UPDATE;
