-- extend_leases: a worker's sign of life: its running leases get another @lease from now. A lease that was taken over is not.
-- Rows: none. Locks: the tasks. Index: task_lease_idx.
UPDATE embedsidecar.task AS t
SET    leased_until = now() + @lease::interval
WHERE  t.task_id = ANY (ARRAY(SELECT w.task_id FROM embedsidecar.task AS w
                              WHERE w.state = 'in_progress' AND w.leased_by = @worker AND w.lease_token = ANY (@tokens::bigint[])
                              ORDER BY w.pipeline_id, w.row_key FOR UPDATE))
       AND t.state = 'in_progress' AND t.lease_token = ANY (@tokens::bigint[]);
