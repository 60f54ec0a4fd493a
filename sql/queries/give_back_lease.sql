-- give_back_lease: end one lease without a result and without counting a try: the database was not there to take it.
-- Rows: none. Locks: the tasks. Index: task_lease_idx.
UPDATE embedsidecar.task AS t
SET    state = 'todo', seq = nextval('embedsidecar.task_seq'), lease_token = NULL, leased_by = NULL, leased_until = NULL, next_lsn = NULL
WHERE  t.state = 'in_progress' AND t.lease_token = @token;
