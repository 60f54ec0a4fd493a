-- reset_cursor: the oldest places still waiting in the lanes of a pipeline, where the next claims may start. It also
-- stores in the turn up to which places nothing waits: a million index entries of finished tasks may precede them.
-- @whole reads from the beginning.
-- Rows: none, or one: the oldest unleased places of lanes 0 to 3 (NULL if there is none), whether a task waits to be
-- tried alone, and the highest place given out. Locks: the turn, if it moves. Index: task_todo_idx, task_alone_idx,
-- primary keys of lease and turn.
WITH known AS MATERIALIZED (
    SELECT t.passable, t.live, CASE WHEN @whole::boolean THEN '{0,0,0,0}' ELSE t.passed END AS passed
        FROM embedsidecar.turn AS t WHERE t.pipeline_id = @pipeline_id
), busy AS MATERIALIZED (
    SELECT unnest(l.task_ids) AS task_id
    FROM   embedsidecar.lease AS l JOIN embedsidecar.pipeline AS p ON p.pipeline_id = l.pipeline_id
        AND p.lease_epoch = l.epoch
    WHERE  l.pipeline_id = @pipeline_id AND l.place > (SELECT k.live FROM known AS k)
           AND l.timeline = ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::integer
), lane AS MATERIALIZED (
    SELECT (n.number - 1)::smallint AS lane, n.after, k.passable
    FROM   known AS k CROSS JOIN LATERAL unnest(k.passed) WITH ORDINALITY AS n (after, number)
), look AS MATERIALIZED (
    SELECT ARRAY(SELECT greatest(l.after, least(l.passable, (
                     SELECT t.seq - 1 FROM embedsidecar.task AS t
                     WHERE t.state = 'todo' AND t.pipeline_id = @pipeline_id AND t.lane = l.lane AND t.seq > l.after
                     ORDER BY t.seq LIMIT 1)))
                 FROM lane AS l ORDER BY l.lane) AS passed,
           ARRAY(SELECT (SELECT t.seq FROM embedsidecar.task AS t
                         WHERE t.state = 'todo' AND t.pipeline_id = @pipeline_id AND t.lane = l.lane AND t.seq > l.after
                               AND t.task_id NOT IN (SELECT b.task_id FROM busy AS b)
                         ORDER BY t.seq LIMIT 1)
                 FROM lane AS l ORDER BY l.lane) AS free
    FROM   known
), moved AS (
    UPDATE embedsidecar.turn AS t SET passed = k.passed FROM look AS k WHERE t.pipeline_id = @pipeline_id
        AND t.passed <> k.passed
)
SELECT k.free,
       EXISTS (SELECT FROM embedsidecar.task AS t WHERE t.state = 'todo' AND t.losses >= 2
           AND t.pipeline_id = @pipeline_id
               AND t.seq > (SELECT min(l.after) FROM lane AS l)
                   AND t.task_id NOT IN (SELECT b.task_id FROM busy AS b)) AS alone,
       coalesce(pg_sequence_last_value('embedsidecar.task_seq'::regclass), 0) AS top
FROM   look AS k;
