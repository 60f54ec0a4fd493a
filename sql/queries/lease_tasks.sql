-- lease_tasks: hand up to @max tasks of one lane of a pipeline to a worker, oldest place first. The task rows are not
-- written: that a task is leased says the lease, one row for the batch. Who leases has locked the pipeline's turn
-- before this statement began (take_turn), so that it sees every lease there is; one of an older epoch or timeline
-- holds nothing. Only tasks whose last change is visible to other sessions are leased: the WAL runs ahead of
-- visibility, and a worker that looked too early would find the old text and call it unchanged. The claim starts behind
-- @cursor, and looks at leases behind what the turn has as live, so that it does not walk over the index entries of
-- tasks and leases long done, which someone's old snapshot may keep alive; reset_cursor finds what was left before it.
-- With @alone it hands out one task of any lane that took part in two lost leases or embedder deaths: it is tried
-- alone, so that a row that kills the embedder is found and its neighbours go free. Each way has an index of its own. A
-- pipeline that is switched off, outside of its hours or without a budget left gets no lease, nor does a worker that
-- knows only an older generation of it, or one by another model, from that moment on: running sidecars hear of it
-- later. A server that went back gives out numbers of pipelines once more. Where it leases nothing it tells whether the
-- lane holds a task that is neither leased nor visible: that one is due in a moment.
-- Rows: the leased tasks, the place of the lease and the server_life; or one with task 0, and whether one is hidden.
-- Locks: the new lease.
-- Index: task_todo_idx, with @alone task_alone_idx; primary key of lease.
WITH fence AS MATERIALIZED (
    SELECT p.lease_epoch AS epoch,
        ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::integer AS timeline
    FROM   embedsidecar.pipeline AS p CROSS JOIN embedsidecar.installation AS i
    WHERE  p.pipeline_id = @pipeline_id AND p.enabled AND i.enabled AND p.generation = @generation
        AND p.fingerprint = @fingerprint
        AND embedsidecar.is_open(p.active_minutes, p.active_zone, p.open_until)
        AND embedsidecar.has_budget(p.budget, p.model_budget, p.pipeline_id)
), live AS MATERIALIZED (
    SELECT CASE WHEN (l.epoch, l.timeline) = (f.epoch, f.timeline) THEN l.task_ids ELSE '{}' END AS task_ids
    FROM   fence AS f CROSS JOIN embedsidecar.lease AS l
    WHERE  l.pipeline_id = @pipeline_id
        AND l.place > coalesce((SELECT t.live FROM embedsidecar.turn AS t WHERE t.pipeline_id = @pipeline_id), 0)
), due AS MATERIALIZED (
    (SELECT w.task_id, w.row_key, w.gen, w.seq, w.lane, w.attempt, w.losses, w.first_lsn, w.last_lsn, w.committed_at,
        w.enqueued_at, w.seen
     FROM   embedsidecar.task AS w
     WHERE  NOT @alone::boolean AND w.state = 'todo' AND w.pipeline_id = @pipeline_id AND w.lane = @lane
         AND w.seq > @cursor AND w.losses < 2
            AND pg_visible_in_snapshot(w.xid, pg_current_snapshot())
            AND EXISTS (SELECT FROM fence)
            AND w.task_id NOT IN (SELECT unnest(v.task_ids) FROM live AS v)
     ORDER BY w.seq LIMIT @max)
    UNION ALL
    (SELECT w.task_id, w.row_key, w.gen, w.seq, w.lane, w.attempt, w.losses, w.first_lsn, w.last_lsn, w.committed_at,
        w.enqueued_at, w.seen
     FROM   embedsidecar.task AS w
     WHERE  @alone::boolean AND w.state = 'todo' AND w.pipeline_id = @pipeline_id AND w.losses >= 2
            AND pg_visible_in_snapshot(w.xid, pg_current_snapshot())
            AND EXISTS (SELECT FROM fence)
            AND w.task_id NOT IN (SELECT unnest(v.task_ids) FROM live AS v)
     ORDER BY w.seq LIMIT 1)
), taken AS (
    INSERT INTO embedsidecar.lease AS l (pipeline_id, token, worker_id, epoch, timeline, extended_at, leased_until,
        task_ids)
    SELECT @pipeline_id, @token, @worker, f.epoch, f.timeline, now(), now() + @lease::interval, ARRAY(SELECT d.task_id
        FROM due AS d)
    FROM   fence AS f
    WHERE  EXISTS (SELECT FROM due)
    RETURNING l.place
)
SELECT d.task_id, d.row_key, d.gen, d.seq, d.lane, d.attempt, d.losses, d.first_lsn, d.last_lsn, d.committed_at,
    clock_timestamp() - d.enqueued_at AS waited, d.seen, t.place, embedsidecar.server_life() AS life, false AS hidden
FROM   due AS d CROSS JOIN taken AS t
UNION ALL
SELECT 0, '', 0, 0, 0, 0, 0, '0/0', '0/0', now(), interval '0', NULL, 0, now(),
       @alone::boolean OR EXISTS (SELECT FROM embedsidecar.task AS w
                                  WHERE  w.state = 'todo' AND w.pipeline_id = @pipeline_id AND w.lane = @lane
                                      AND w.seq > @cursor
                                         AND w.task_id NOT IN (SELECT unnest(v.task_ids) FROM live AS v))
WHERE  NOT EXISTS (SELECT FROM due)
ORDER BY seq;
