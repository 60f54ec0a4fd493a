-- give_back_leases: end some leases without a result and without counting a try: the database was not there to take it.
-- Rows: none. Locks: the tasks. Index: task_lease_idx.
UPDATE embedsidecar.task AS t
SET    state = 'todo', seq = nextval('embedsidecar.task_seq'), lease_token = NULL, leased_by = NULL, leased_until = NULL, next_lsn = NULL
WHERE  t.task_id = ANY (ARRAY(SELECT w.task_id FROM embedsidecar.task AS w
                              WHERE w.state = 'in_progress' AND w.lease_token = ANY (@tokens)
                              ORDER BY w.pipeline_id, w.row_key FOR UPDATE))
       AND t.state = 'in_progress' AND t.lease_token = ANY (@tokens);
