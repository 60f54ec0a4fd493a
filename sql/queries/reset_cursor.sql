-- reset_cursor: the oldest places still waiting in the lanes of a pipeline: where the next claims may start.
-- @after are places of the lanes before which nothing can wait any more, @live that of leases: what is before them may be a million index
-- entries of tasks long done.
-- Rows: one: the oldest place of lanes 0 to 3, leased or not, and the oldest that is not leased, NULL where there is none; and whether a task
-- waits to be tried alone. Locks: none. Index: task_todo_idx, task_alone_idx, primary key of lease.
WITH busy AS MATERIALIZED (
    SELECT unnest(l.task_ids) AS task_id
    FROM   embedsidecar.lease AS l JOIN embedsidecar.pipeline AS p ON p.pipeline_id = l.pipeline_id AND p.lease_epoch = l.epoch
    WHERE  l.pipeline_id = @pipeline_id AND l.place > @live AND l.timeline = ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::integer
)
SELECT ARRAY(SELECT (SELECT t.seq FROM embedsidecar.task AS t
                     WHERE t.state = 'todo' AND t.pipeline_id = @pipeline_id AND t.lane = l.lane AND t.seq > l.after
                     ORDER BY t.seq LIMIT 1)
             FROM unnest(@after::bigint[]) WITH ORDINALITY AS n (after, number) CROSS JOIN LATERAL (SELECT n.after, (n.number - 1)::smallint AS lane) AS l
             ORDER BY l.lane) AS oldest,
       ARRAY(SELECT (SELECT t.seq FROM embedsidecar.task AS t
                     WHERE t.state = 'todo' AND t.pipeline_id = @pipeline_id AND t.lane = l.lane AND t.seq > l.after
                           AND t.task_id NOT IN (SELECT b.task_id FROM busy AS b)
                     ORDER BY t.seq LIMIT 1)
             FROM unnest(@after::bigint[]) WITH ORDINALITY AS n (after, number) CROSS JOIN LATERAL (SELECT n.after, (n.number - 1)::smallint AS lane) AS l
             ORDER BY l.lane) AS free,
       EXISTS (SELECT FROM embedsidecar.task AS t WHERE t.state = 'todo' AND t.losses >= 2 AND t.pipeline_id = @pipeline_id
               AND t.seq > (SELECT min(n.after) FROM unnest(@after::bigint[]) AS n (after)) AND t.task_id NOT IN (SELECT b.task_id FROM busy AS b)) AS alone;
