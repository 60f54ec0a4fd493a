-- lease_tasks: hand up to @max tasks of one lane of a pipeline to a worker, oldest place first.
-- Only tasks whose last change is visible to other sessions are leased: the WAL runs ahead of visibility, and a worker that
-- looked too early would find the old text and call it unchanged.
-- The claim starts behind @cursor, so that it does not walk over the index entries of tasks long done, which somebody's old
-- snapshot may keep alive; reset_cursor finds what was left before it.
-- A pipeline that is switched off gets no lease, nor does a worker that knows only an older generation of it, from that moment
-- on: running sidecars hear of it later.
-- Rows: the leased tasks. Locks: the rows taken, SKIP LOCKED. Index: task_todo_idx.
UPDATE embedsidecar.task AS t
SET    state = 'in_progress', lease_token = @token, leased_by = @worker,
       leased_until = now() + @lease::interval, next_lsn = NULL
WHERE  t.task_id = ANY (ARRAY(
           SELECT w.task_id
           FROM   embedsidecar.task AS w
           WHERE  w.state = 'todo' AND w.pipeline_id = @pipeline_id AND w.lane = @lane AND w.seq > @cursor AND w.losses < 2
                  AND pg_visible_in_snapshot(w.xid, pg_current_snapshot())
                  AND EXISTS (SELECT FROM embedsidecar.pipeline AS p CROSS JOIN embedsidecar.installation AS i
                              WHERE p.pipeline_id = @pipeline_id AND p.enabled AND i.enabled AND p.generation = @generation)
           ORDER BY w.seq
           LIMIT  @max
           FOR UPDATE SKIP LOCKED))
RETURNING t.task_id, t.row_key, t.gen, t.seq, t.lane, t.lease_token, t.attempt, t.losses, t.first_lsn, t.last_lsn, t.committed_at, t.enqueued_at;
