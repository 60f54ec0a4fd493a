-- sweep_tasks: reopen tasks that are due: retries whose backoff is over, and tasks under expired leases (the worker
-- died or hangs). A row that lost two leases is tried alone. A dead worker does not say which row killed it, and other
-- pipelines ran even beside a row that was tried alone: so only @dead_after lost leases in a row make it a dead letter.
-- Leases of an older epoch or timeline are just deleted. A clock that was set back blocks nothing: a lease that was
-- extended in the future ends, and with @mend so does a backoff that began there. The states of tasks that are looked
-- up by number are compared as text: otherwise the planner reads a whole index of that state, dead entries too. Leases
-- are looked up by ctid for the same reason: by number, among a million ended leases, all entries of the primary key
-- are read. A lease that was extended since the snapshot has moved and is left to the next round. The stream may need
-- the same tasks, so the commit waits for no replica: what a replica has not received is swept again there. The turn
-- keeps after which place a pipeline's live leases are, and before which places of its lanes nothing waits. Nothing is
-- due up to @due_after.
-- Rows: one: the pipelines that have work, how many rows lost their lease, when something becomes due next, the time up
-- to which nothing is due any more (NULL: there was too much), and whether something was set aside. Locks: leases and
-- tasks, SKIP LOCKED. Index: task_retry_idx, primary keys.
WITH known AS MATERIALIZED (
    SELECT p.pipeline_id, p.lease_epoch, set_config('synchronous_commit', CASE
        WHEN current_setting('synchronous_commit') = 'off' THEN 'off' ELSE 'local' END, true) AS commit,
        coalesce(f.live, 0) AS live, n.lane, coalesce(f.passed[n.lane + 1], 0) AS after
    FROM   embedsidecar.pipeline AS p
           LEFT JOIN embedsidecar.turn AS f USING (pipeline_id)
           CROSS JOIN LATERAL unnest('{0,1,2,3}'::smallint[]) AS n (lane)
), over AS (
    DELETE FROM embedsidecar.lease AS l
    WHERE  l.ctid = ANY (ARRAY(
               SELECT f.ctid FROM known AS k CROSS JOIN LATERAL (
                   SELECT w.ctid
                   FROM   embedsidecar.lease AS w
                   WHERE  w.pipeline_id = k.pipeline_id AND w.place > k.live
                          AND (w.epoch <> k.lease_epoch
                              OR w.timeline <> ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1,
                              8))::bit(32)::integer
                               OR now() NOT BETWEEN w.extended_at - interval '5 s' AND w.leased_until)
                   ORDER BY w.pipeline_id, w.place LIMIT 1000
                   FOR UPDATE OF w SKIP LOCKED) AS f
               WHERE  k.lane = 0))
    RETURNING l.pipeline_id,
              CASE WHEN l.epoch = (SELECT k.lease_epoch FROM known AS k WHERE k.pipeline_id = l.pipeline_id
                  AND k.lane = 0)
                        AND l.timeline = ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1,
                            8))::bit(32)::integer
                   THEN l.task_ids ELSE '{}' END AS task_ids
), lost AS (
    UPDATE embedsidecar.task AS t
    SET    lost_leases   = t.lost_leases + 1,
           losses        = greatest(t.losses, least(t.lost_leases + 1, 2)),
           state         = CASE WHEN t.lost_leases + 1 >= @dead_after THEN 'failed' ELSE 'todo'
               END::embedsidecar.task_state,
           error_class   = CASE WHEN t.lost_leases + 1 >= @dead_after THEN 'crash' END,
           error_code    = CASE WHEN t.lost_leases + 1 >= @dead_after THEN 'lease_lost' END,
           error_message = CASE WHEN t.lost_leases + 1 >= @dead_after
               THEN 'the worker was lost each time it held this row' END,
           seq           = nextval('embedsidecar.task_seq')
    WHERE  t.task_id = ANY (ARRAY(SELECT w.task_id FROM embedsidecar.task AS w
                                  WHERE w.state::text = 'todo'
                                      AND w.task_id = ANY (ARRAY(SELECT unnest(o.task_ids)
                                      FROM over AS o)) FOR UPDATE SKIP LOCKED))
    RETURNING t.pipeline_id
), ripe AS MATERIALIZED (
    SELECT f.task_id
    FROM   known AS k CROSS JOIN LATERAL (
               SELECT w.task_id FROM embedsidecar.task AS w
               WHERE  w.state = 'retrying' AND w.pipeline_id = k.pipeline_id AND w.lane = k.lane
                   AND w.due_at > @due_after AND w.due_at <= now()
               ORDER BY w.due_at LIMIT 5000) AS f
), stranded AS MATERIALIZED (
    SELECT f.task_id
    FROM   known AS k CROSS JOIN LATERAL (
               SELECT w.task_id FROM embedsidecar.task AS w
               WHERE  w.state = 'retrying' AND w.pipeline_id = k.pipeline_id AND w.lane = k.lane AND w.due_at > now()
                   AND w.waits_since > now() + interval '5 s'
               ORDER BY w.due_at DESC LIMIT 5000) AS f
    WHERE  @mend::boolean
), due AS (
    UPDATE embedsidecar.task AS t
    SET    state = 'todo', seq = nextval('embedsidecar.task_seq'), waits_since = NULL
    WHERE  t.task_id = ANY (ARRAY(SELECT w.task_id FROM embedsidecar.task AS w
                                  WHERE w.state::text = 'retrying'
                                      AND w.task_id = ANY (ARRAY(SELECT r.task_id FROM ripe AS r UNION SELECT s.task_id
                                      FROM stranded AS s))
                                  FOR UPDATE SKIP LOCKED))
    RETURNING t.pipeline_id
)
SELECT ARRAY(SELECT pipeline_id FROM due UNION SELECT pipeline_id FROM over
             UNION SELECT k.pipeline_id FROM known AS k CROSS JOIN LATERAL (
                   SELECT FROM embedsidecar.task AS t
                   WHERE t.state = 'todo' AND t.pipeline_id = k.pipeline_id AND t.lane = k.lane AND t.seq > k.after
                       LIMIT 1) AS t) AS pipelines,
       (SELECT count(*) FROM lost) AS lost,
       extract(epoch FROM least((SELECT min(t.due_at) FROM known AS k CROSS JOIN LATERAL (
                                     SELECT t.due_at FROM embedsidecar.task AS t
                                     WHERE t.state = 'retrying' AND t.pipeline_id = k.pipeline_id AND t.lane = k.lane
                                         AND t.due_at > now()
                                     ORDER BY t.due_at LIMIT 1) AS t),
                                (SELECT min(l.leased_until) FROM known AS k CROSS JOIN LATERAL (
                                     SELECT l.leased_until FROM embedsidecar.lease AS l
                                     WHERE l.pipeline_id = k.pipeline_id AND l.place > k.live
                                         ORDER BY l.pipeline_id, l.place LIMIT 1000) AS l
                                 WHERE k.lane = 0 AND l.leased_until >= now()))
                          - now())::double precision AS due_in_seconds,
       CASE WHEN (SELECT count(*) FROM due) >= (SELECT count(*) FROM ripe)
           AND (SELECT count(*) FROM ripe) < 5000 THEN now() - interval '1 min' END AS due_before,
       EXISTS (SELECT FROM embedsidecar.aside) AS aside;
