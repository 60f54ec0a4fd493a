-- finish_tasks: end the lease of some tasks, if it is still ours and the server has not restarted (hold_lease):
-- finished tasks move to history, the others are retried later or become dead letters. A task whose row changed since
-- the lease (gen) stays open whatever the outcome. So does a task that is locked, or was when this statement began: a
-- change is being added to it, and this statement waits for nothing. A task that was cancelled or scheduled for later
-- since the lease, and did not change after that, stays so. The stream waits for the tasks, so only the commit may
-- follow. What was satisfied is older than next_lsn, which is no later than the oldest change that was not.
-- history_turn names the partition of history to write.
-- Parameters: arrays of one length, one element per task; actions are done, todo, retrying or failed; lanes NULL:
-- unchanged. @generation 0: not checked.
-- Rows: task_id and its new state (done for tasks that left). Locks: the tasks, SKIP LOCKED; the lease. Index: primary
-- keys.
WITH held AS MATERIALIZED (
    SELECT l.task_ids, l.started_at, set_config('synchronous_commit', CASE
        WHEN current_setting('synchronous_commit') = 'off' THEN 'off' ELSE 'local' END, true) AS commit
    FROM   embedsidecar.lease AS l
    WHERE  l.pipeline_id = @pipeline_id AND l.place = @place AND l.token = @token
           AND l.timeline = ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::integer
           AND EXISTS (SELECT FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = l.pipeline_id
               AND p.lease_epoch = l.epoch
                       AND (@generation::integer = 0 OR p.generation = @generation::integer))
           AND embedsidecar.server_life() = @life::timestamptz
    FOR KEY SHARE OF l
), input AS MATERIALIZED (
    SELECT i.*
        FROM unnest(@task_ids::bigint[], @gens::bigint[], @actions::text[], @outcomes::text[], @attempts::smallint[],
                           @losses::smallint[], @delays::double precision[], @classes::text[], @codes::text[],
                               @messages::text[], @lanes::smallint[])
         AS i (task_id, gen, action, outcome, attempt, losses, delay, class, code, message, lane)
    WHERE  EXISTS (SELECT FROM held AS h WHERE h.commit IS NOT NULL)
), free AS MATERIALIZED (
    SELECT t.task_id FROM embedsidecar.task AS t
    WHERE  t.task_id = ANY (ARRAY(SELECT i.task_id FROM input AS i))
    FOR UPDATE SKIP LOCKED
), mine AS MATERIALIZED (
    SELECT i.* FROM input AS i JOIN free AS f ON f.task_id = i.task_id
), done AS (
    DELETE FROM embedsidecar.task AS t USING mine AS i
    WHERE  t.task_id = i.task_id AND t.gen = i.gen AND i.action = 'done'
    RETURNING t.task_id, t.pipeline_id, t.row_key, t.committed_at, t.last_lsn, i.outcome, i.attempt, NULL::text AS code,
        t.enqueued_at, t.due_at
), kept AS (
    UPDATE embedsidecar.task AS t SET
        state         = CASE WHEN t.state IN ('cancelled', 'retrying') THEN t.state WHEN t.gen <> i.gen THEN 'todo'
            ELSE i.action::embedsidecar.task_state END,
        lane          = CASE WHEN t.gen = i.gen THEN coalesce(i.lane, t.lane) ELSE t.lane END,
        seq           = nextval('embedsidecar.task_seq'),
        first_lsn     = CASE WHEN t.gen <> i.gen AND i.action = 'done' THEN coalesce(t.next_lsn, t.first_lsn)
            ELSE t.first_lsn END,
        next_lsn      = NULL,
        committed_at  = CASE WHEN t.gen <> i.gen
            AND i.action = 'done' THEN coalesce(t.next_committed_at, t.committed_at) ELSE t.committed_at END,
        next_committed_at = NULL,
        attempt       = CASE WHEN t.gen <> i.gen THEN 0 ELSE i.attempt END,
        losses        = CASE WHEN t.gen <> i.gen THEN 0 ELSE i.losses END,
        lost_leases   = 0,
        waits_since   = CASE WHEN t.state = 'retrying' THEN t.waits_since
            WHEN t.gen = i.gen AND i.action = 'retrying' AND t.state <> 'cancelled' THEN clock_timestamp() END,
        due_at        = CASE WHEN t.state = 'retrying' THEN t.due_at WHEN t.gen = i.gen AND i.action = 'retrying'
            AND t.state <> 'cancelled' THEN clock_timestamp() + make_interval(secs => i.delay)
            WHEN t.gen = i.gen THEN t.due_at END,
        started_at    = (SELECT h.started_at FROM held AS h),
        finished_at   = clock_timestamp(),
        error_class   = CASE WHEN t.gen = i.gen THEN i.class END,
        error_code    = CASE WHEN t.gen = i.gen THEN i.code END,
        error_message = CASE WHEN t.gen = i.gen THEN i.message END
    FROM   mine AS i
    WHERE  t.task_id = i.task_id AND (t.gen <> i.gen OR i.action <> 'done')
    RETURNING t.task_id, t.pipeline_id, t.row_key, t.committed_at, t.last_lsn, t.state, i.action, i.outcome, i.attempt,
        i.code, t.enqueued_at, t.due_at
), stays AS MATERIALIZED ( -- unchanged: locked, or changed while this statement began
    SELECT i.* FROM input AS i WHERE i.task_id NOT IN (SELECT d.task_id FROM done AS d UNION ALL SELECT k.task_id
        FROM kept AS k)
), told AS (
    INSERT INTO embedsidecar.history (bucket, pipeline_id, row_key, outcome, attempt, worker_id, committed_at, lsn,
        error_code, took_ms, generation, created_at, scheduled_at)
    SELECT (SELECT h.bucket FROM embedsidecar.history_turn AS h), e.pipeline_id, e.row_key, e.outcome, e.attempt,
        @worker::bigint, e.committed_at, e.last_lsn, e.code,
           @took::integer, nullif(@generation::integer, 0), e.enqueued_at, e.due_at
    FROM  (SELECT pipeline_id, row_key, outcome, attempt, committed_at, last_lsn, code, enqueued_at, due_at FROM done
           UNION ALL
           SELECT pipeline_id, row_key, outcome, attempt, committed_at, last_lsn, code, enqueued_at, due_at FROM kept
               WHERE action IN ('done', 'failed')
           UNION ALL -- the finished work counts, though the task stays
           SELECT t.pipeline_id, t.row_key, i.outcome, i.attempt, t.committed_at, t.last_lsn, NULL,
               t.enqueued_at, t.due_at
           FROM   stays AS i JOIN embedsidecar.task AS t ON t.task_id = i.task_id
           WHERE  i.action = 'done' AND t.task_id = ANY (ARRAY(SELECT s.task_id FROM stays AS s))) AS e
), ended AS (
    DELETE FROM embedsidecar.lease AS l
    WHERE  l.pipeline_id = @pipeline_id AND l.place = @place AND l.task_ids <@ @task_ids::bigint[]
        AND EXISTS (SELECT FROM input)
), shortened AS (
    UPDATE embedsidecar.lease AS l SET task_ids = ARRAY(SELECT u FROM unnest(l.task_ids) AS u
        WHERE u <> ALL (@task_ids::bigint[]))
    WHERE  l.pipeline_id = @pipeline_id AND l.place = @place AND NOT l.task_ids <@ @task_ids::bigint[]
        AND EXISTS (SELECT FROM input)
)
SELECT task_id, 'done' AS state FROM done
UNION ALL
SELECT task_id, state::text FROM kept
UNION ALL
SELECT task_id, 'todo' FROM stays;
