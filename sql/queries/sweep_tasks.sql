-- sweep_tasks: open again what has become due: retries whose pause is over, and leases that ran out (the worker died or
-- hangs). A row that lost two is tried alone. A dead worker does not say whom it died of, and other pipelines were at work beside even a
-- row that is tried alone: so only the twentieth lease lost in a row makes it a dead letter.
-- Rows: one: the pipelines that have work, how many leases were lost, and when something becomes due next.
-- Locks: the tasks, SKIP LOCKED. Index: task_due_idx, task_lease_idx.
WITH due AS (
    UPDATE embedsidecar.task AS t
    SET    state = 'todo', seq = nextval('embedsidecar.task_seq'), due_at = NULL
    WHERE  t.task_id = ANY (ARRAY(SELECT w.task_id FROM embedsidecar.task AS w
                                  WHERE w.state = 'retrying' AND w.due_at <= now() LIMIT 5000 FOR UPDATE SKIP LOCKED))
    RETURNING t.pipeline_id
), lost AS (
    UPDATE embedsidecar.task AS t
    SET    lost_leases   = t.lost_leases + 1,
           losses        = greatest(t.losses, least(t.lost_leases + 1, 2)),
           state         = CASE WHEN t.lost_leases >= 19 THEN 'failed' ELSE 'todo' END::embedsidecar.task_state,
           error_class   = CASE WHEN t.lost_leases >= 19 THEN 'crash' END,
           error_code    = CASE WHEN t.lost_leases >= 19 THEN 'lease_lost' END,
           error_message = CASE WHEN t.lost_leases >= 19 THEN 'the worker was lost each time it held this row' END,
           seq           = nextval('embedsidecar.task_seq'),
           lease_token   = NULL, leased_by = NULL, leased_until = NULL, next_lsn = NULL
    WHERE  t.task_id = ANY (ARRAY(SELECT w.task_id FROM embedsidecar.task AS w
                                  WHERE w.state = 'in_progress' AND w.leased_until < now() LIMIT 5000 FOR UPDATE SKIP LOCKED))
    RETURNING t.pipeline_id
)
SELECT ARRAY(SELECT pipeline_id FROM due UNION SELECT pipeline_id FROM lost
             UNION SELECT p.pipeline_id FROM embedsidecar.pipeline AS p
                   WHERE EXISTS (SELECT FROM embedsidecar.task AS t WHERE t.state = 'todo' AND t.pipeline_id = p.pipeline_id)) AS pipelines,
       (SELECT count(*) FROM lost) AS lost,
       extract(epoch FROM least((SELECT min(t.due_at) FROM embedsidecar.task AS t WHERE t.state = 'retrying' AND t.due_at > now()),
                                (SELECT min(t.leased_until) FROM embedsidecar.task AS t WHERE t.state = 'in_progress' AND t.leased_until >= now()))
                          - now())::double precision AS due_in_seconds;
