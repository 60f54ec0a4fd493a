-- take_aside: what was set aside, oldest first, after one place, without what another session works on; and whether the
-- task of its row is locked, or its transaction not visible yet. A task that is not visible yet cannot be checked.
-- Rows: at most @max. Locks: these, and the tasks of their rows, SKIP LOCKED. Index: primary key, unique key of task.
WITH portion AS MATERIALIZED (
    SELECT a.* FROM embedsidecar.aside AS a WHERE a.aside_id > @after ORDER BY a.aside_id
        LIMIT @max FOR UPDATE SKIP LOCKED
), there AS MATERIALIZED (
    SELECT s.aside_id, t.task_id FROM portion AS s CROSS JOIN LATERAL (
        SELECT t.task_id FROM embedsidecar.task AS t WHERE t.row_key = s.row_key
            AND t.pipeline_id = s.pipeline_id OFFSET 0) AS t
), free AS MATERIALIZED (
    SELECT t.task_id FROM embedsidecar.task AS t
        WHERE t.task_id = ANY (ARRAY(SELECT h.task_id FROM there AS h)) FOR UPDATE SKIP LOCKED
)
SELECT s.aside_id, s.pipeline_id, s.row_key, s.lane, s.first_lsn, s.last_lsn, s.committed_at, s.reason,
       h.task_id IS NOT NULL AND h.task_id NOT IN (SELECT f.task_id FROM free AS f)
       OR s.row_key IS NOT NULL AND s.xid <> 0
          AND NOT pg_visible_in_snapshot((e.top - ((e.top - s.xid + 2147483648) & 4294967295) + 2147483648)::text::xid8,
              pg_current_snapshot()) AS held
FROM   portion AS s LEFT JOIN there AS h ON h.aside_id = s.aside_id
       CROSS JOIN (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS top) AS e
ORDER BY s.aside_id;
