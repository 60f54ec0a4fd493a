-- lease_alone: hand out one task that took part in two lost leases or embedder deaths: it is tried alone, so that a row that
-- kills the embedder is found and its neighbours go free.
-- Rows: at most one task. Locks: that row, SKIP LOCKED. Index: task_alone_idx.
UPDATE embedsidecar.task AS t
SET    state = 'in_progress', lease_token = @token, leased_by = @worker,
       leased_until = now() + @lease::interval, next_lsn = NULL
WHERE  t.task_id = ANY (ARRAY(
           SELECT w.task_id
           FROM   embedsidecar.task AS w
           WHERE  w.state = 'todo' AND w.losses >= 2 AND w.pipeline_id = @pipeline_id
                  AND pg_visible_in_snapshot(w.xid, pg_current_snapshot())
                  AND EXISTS (SELECT FROM embedsidecar.pipeline AS p CROSS JOIN embedsidecar.installation AS i
                              WHERE p.pipeline_id = @pipeline_id AND p.enabled AND i.enabled AND p.generation = @generation)
           ORDER BY w.seq
           LIMIT  1
           FOR UPDATE SKIP LOCKED))
RETURNING t.task_id, t.row_key, t.gen, t.seq, t.lane, t.lease_token, t.attempt, t.losses, t.first_lsn, t.last_lsn, t.committed_at, t.enqueued_at;
