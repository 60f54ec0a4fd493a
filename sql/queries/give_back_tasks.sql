-- give_back_tasks: end a worker's leases without a result and without counting a try: it stops in good order.
-- Rows: none. Locks: the tasks. Index: task_lease_idx.
UPDATE embedsidecar.task AS t
SET    state = 'todo', seq = nextval('embedsidecar.task_seq'), lease_token = NULL, leased_by = NULL, leased_until = NULL, next_lsn = NULL
WHERE  t.task_id = ANY (ARRAY(SELECT w.task_id FROM embedsidecar.task AS w
                              WHERE w.state = 'in_progress' AND w.leased_by = @worker
                              ORDER BY w.pipeline_id, w.row_key FOR UPDATE))
       AND t.state = 'in_progress' AND t.leased_by = @worker;
