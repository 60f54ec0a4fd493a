-- lease_tasks: lease up to @max tasks of one lane of a pipeline to a worker, oldest place first. The task rows are not
-- written: the lease, one row for the batch, lists them. The caller has locked the pipeline's turn before this
-- statement began (take_turn), so it sees every lease; a lease of an older epoch or timeline holds nothing. Only tasks
-- whose last change is visible to other sessions are leased: the WAL runs ahead of visibility, and a worker that reads
-- too early would find the old text and call the row unchanged. The claim starts after @cursor, and reads only leases
-- after the turn's live place. So it skips the index entries of finished tasks and leases, which an old snapshot may
-- keep alive; reset_cursor finds tasks that were left before it. With @alone it leases one task of any lane that took
-- part in two lost leases or embedder deaths: tried alone, a row that kills the embedder is found and its neighbours
-- are freed. With @keys it leases tasks of these rows, even if no budget is left. Each variant has its own index. A
-- pipeline that is paused, outside its hours or without a budget left gets no lease. Nor does a worker that knows only
-- an older generation of it or another model, from that moment on: running sidecars notice later, and a server that
-- lost its latest WAL reuses numbers of pipelines. If it leases nothing, it reports whether the lane holds a task that
-- is neither leased nor visible: such a task is due in a moment.
-- Rows: the leased tasks, the place of the lease and the server_life; or one with task 0, and whether one is hidden.
-- Locks: the new lease.
-- Index: task_todo_idx, with @alone task_alone_idx, with @keys the unique key of task; primary key of lease.
WITH fence AS MATERIALIZED (
    SELECT p.lease_epoch AS epoch,
        ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::integer AS timeline
    FROM   embedsidecar.pipeline AS p CROSS JOIN embedsidecar.installation AS i
    WHERE  p.pipeline_id = @pipeline_id AND p.enabled AND i.enabled AND p.generation = @generation
        AND p.fingerprint = @fingerprint
        AND embedsidecar.is_open(p.active_minutes, p.active_zone, p.open_until)
        AND (@keys::text[] IS NOT NULL OR embedsidecar.has_budget(p.budget, p.model_budget, p.pipeline_id))
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
    UNION ALL
    (SELECT w.task_id, w.row_key, w.gen, w.seq, w.lane, w.attempt, w.losses, w.first_lsn, w.last_lsn, w.committed_at,
        w.enqueued_at, w.seen
     FROM   embedsidecar.task AS w
     WHERE  @keys::text[] IS NOT NULL AND w.state = 'todo' AND w.pipeline_id = @pipeline_id
            AND w.row_key = ANY (@keys::text[]) AND w.losses < 2
            AND pg_visible_in_snapshot(w.xid, pg_current_snapshot())
            AND EXISTS (SELECT FROM fence)
            AND w.task_id NOT IN (SELECT unnest(v.task_ids) FROM live AS v)
     ORDER BY w.seq LIMIT @max)
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
