-- finish_tasks: end the leases of @token: done tasks leave for history, the others wait for another try or become dead
-- letters. A task whose row changed since the lease (gen) is opened again instead, whatever came of it.
-- History is a ring of @buckets partitions, each for @span seconds of this server's clock.
-- Parameters: arrays of one length, one element per task; actions are done, todo, retrying or failed.
-- Rows: task_id and the state it went to (done for those that left). Locks: the tasks (lock_tasks took them in a write-back).
WITH input AS (
    SELECT * FROM unnest(@task_ids::bigint[], @gens::bigint[], @actions::text[], @outcomes::text[], @attempts::smallint[],
                         @losses::smallint[], @delays::double precision[], @classes::text[], @codes::text[], @messages::text[])
         AS i (task_id, gen, action, outcome, attempt, losses, delay, class, code, message)
), done AS (
    DELETE FROM embedsidecar.task AS t USING input AS i
    WHERE  t.task_id = i.task_id AND t.lease_token = @token AND t.gen = i.gen AND i.action = 'done'
    RETURNING t.task_id, t.pipeline_id, t.row_key, t.committed_at, t.last_lsn, i.outcome, i.attempt, t.leased_by, NULL::text AS code
), kept AS (
    UPDATE embedsidecar.task AS t SET
        state         = CASE WHEN t.gen <> i.gen THEN 'todo' ELSE i.action::embedsidecar.task_state END,
        seq           = nextval('embedsidecar.task_seq'),
        first_lsn     = CASE WHEN t.gen <> i.gen AND i.action = 'done' THEN coalesce(t.next_lsn, t.first_lsn) ELSE t.first_lsn END,
        next_lsn      = NULL,
        attempt       = CASE WHEN t.gen <> i.gen THEN 0 ELSE i.attempt END,
        losses        = CASE WHEN t.gen <> i.gen THEN 0 ELSE i.losses END,
        lost_leases   = 0,
        due_at        = CASE WHEN t.gen = i.gen AND i.action = 'retrying' THEN now() + make_interval(secs => i.delay) END,
        error_class   = CASE WHEN t.gen = i.gen THEN i.class END,
        error_code    = CASE WHEN t.gen = i.gen THEN i.code END,
        error_message = CASE WHEN t.gen = i.gen THEN i.message END,
        lease_token   = NULL, leased_by = NULL, leased_until = NULL
    FROM   input AS i
    WHERE  t.task_id = i.task_id AND t.lease_token = @token AND (t.gen <> i.gen OR i.action <> 'done')
    RETURNING t.task_id, t.pipeline_id, t.row_key, t.committed_at, t.last_lsn, t.state, i.action, i.outcome, i.attempt, i.code
), told AS (
    INSERT INTO embedsidecar.history (bucket, pipeline_id, row_key, outcome, attempt, worker_id, committed_at, lsn, error_code)
    SELECT floor(extract(epoch FROM now()) / @span::integer)::bigint % @buckets::integer, pipeline_id, row_key, outcome, attempt, leased_by, committed_at, last_lsn, code FROM done
    UNION ALL
    SELECT floor(extract(epoch FROM now()) / @span::integer)::bigint % @buckets::integer, pipeline_id, row_key, outcome, attempt, @worker::bigint, committed_at, last_lsn, code FROM kept
    WHERE  action IN ('done', 'failed')
)
SELECT task_id, 'done' AS state FROM done
UNION ALL
SELECT task_id, state::text FROM kept;
