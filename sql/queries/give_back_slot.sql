-- give_back_slot: end all leases of a slot's pipelines without a result and without counting a try: the server was replaced by its
-- standby, and what workers read before may be of changes that this one never had.
-- Rows: the slot's pipelines. Locks: the tasks. Index: task_lease_idx.
WITH ours AS (
    SELECT p.pipeline_id FROM embedsidecar.pipeline AS p WHERE p.slot_name = @slot
), back AS (
    UPDATE embedsidecar.task AS t
    SET    state = 'todo', seq = nextval('embedsidecar.task_seq'), lease_token = NULL, leased_by = NULL, leased_until = NULL, next_lsn = NULL
    WHERE  t.task_id = ANY (ARRAY(SELECT w.task_id FROM embedsidecar.task AS w
                                  WHERE w.state = 'in_progress' AND w.pipeline_id IN (SELECT pipeline_id FROM ours)
                                  ORDER BY w.pipeline_id, w.row_key FOR UPDATE))
           AND t.state = 'in_progress'
)
SELECT coalesce(array_agg(pipeline_id ORDER BY pipeline_id), '{}') FROM ours;
