-- extend_leases: a worker's sign of life: its running leases get another @lease from now. A lease that was taken over is not.
-- Rows: none. Locks: the tasks. Index: task_lease_idx.
UPDATE embedsidecar.task AS t
SET    leased_until = now() + @lease::interval
WHERE  t.state = 'in_progress' AND t.leased_by = @worker AND t.lease_token = ANY (@tokens::bigint[]);
