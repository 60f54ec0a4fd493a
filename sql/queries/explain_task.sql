-- explain_task: the task of a row: how it stands, for which changes, who works on it, and how many of its pipeline and lane wait before it,
-- counted up to @cap. A task whose lease is over and that nobody has taken yet is stale.
-- Rows: one, or none. Locks: none. Index: unique key of task, task_todo_idx, primary key of lease.
SELECT CASE WHEN t.state <> 'todo' OR h.seconds_left IS NULL THEN t.state::text WHEN h.seconds_left >= 0 THEN 'in_progress' ELSE 'stale' END AS state,
       (ARRAY['low', 'normal', 'high', 'urgent'])[t.lane + 1] AS lane,
       CASE WHEN t.state = 'todo' THEN
           (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS o
                WHERE o.state = 'todo' AND o.pipeline_id = @pipeline_id AND o.lane = t.lane AND o.seq < t.seq
                      AND o.task_id NOT IN (SELECT unnest(l.task_ids) FROM embedsidecar.lease AS l WHERE l.pipeline_id = @pipeline_id AND l.leased_until >= now())
                LIMIT @cap) AS c)
       ELSE 0 END AS ahead,
       t.attempt::integer, t.first_lsn::text, t.last_lsn::text, t.committed_at, extract(epoch FROM now() - t.committed_at)::double precision AS committed_seconds_ago,
       t.enqueued_at, pg_visible_in_snapshot(t.xid, pg_current_snapshot()) AS visible,
       CASE WHEN t.state = 'retrying' THEN greatest(extract(epoch FROM t.due_at - now()), 0)::double precision END AS next_try_seconds,
       coalesce(h.instance, '') AS leased_by, h.leased_until,
       coalesce(t.error_class, '') AS class, coalesce(t.error_code, '') AS code, coalesce(t.error_message, '') AS message
FROM   embedsidecar.task AS t
       LEFT JOIN LATERAL (
           SELECT coalesce(w.instance, 'worker ' || l.worker_id) AS instance, l.leased_until, extract(epoch FROM l.leased_until - now()) AS seconds_left
           FROM   embedsidecar.lease AS l
                  JOIN embedsidecar.pipeline AS p ON p.pipeline_id = l.pipeline_id AND p.lease_epoch = l.epoch
                  LEFT JOIN embedsidecar.worker AS w ON w.worker_id = l.worker_id
           WHERE  l.pipeline_id = @pipeline_id AND t.task_id = ANY (l.task_ids)
           ORDER  BY l.leased_until DESC LIMIT 1) AS h ON true
WHERE  t.pipeline_id = @pipeline_id AND t.row_key = @row_key;
