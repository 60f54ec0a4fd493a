-- find_leftovers: removed pipelines that have left a ledger, tasks, leases or measures; a ledger that is kept does not
-- count. The query hops from one pipeline to the next.
-- Rows: their numbers. Locks: none. Index: primary keys of ledger, lease and measure, task_todo_idx, task_retry_idx,
-- task_failed_idx, task_cancelled_idx.
WITH RECURSIVE in_ledger AS (
    SELECT (SELECT min(l.pipeline_id) FROM embedsidecar.ledger AS l) AS id
    UNION ALL SELECT (SELECT min(l.pipeline_id) FROM embedsidecar.ledger AS l WHERE l.pipeline_id > b.id)
        FROM in_ledger AS b WHERE b.id IS NOT NULL
), measured AS (
    SELECT (SELECT min(m.pipeline_id) FROM embedsidecar.measure AS m WHERE m.pipeline_id > 0) AS id
    UNION ALL SELECT (SELECT min(m.pipeline_id) FROM embedsidecar.measure AS m WHERE m.pipeline_id > b.id)
        FROM measured AS b WHERE b.id IS NOT NULL
), waiting AS (
    SELECT (SELECT min(t.pipeline_id) FROM embedsidecar.task AS t WHERE t.state = 'todo') AS id
    UNION ALL SELECT (SELECT min(t.pipeline_id) FROM embedsidecar.task AS t WHERE t.state = 'todo'
        AND t.pipeline_id > b.id) FROM waiting AS b WHERE b.id IS NOT NULL
), retrying AS (
    SELECT (SELECT min(t.pipeline_id) FROM embedsidecar.task AS t WHERE t.state = 'retrying') AS id
    UNION ALL SELECT (SELECT min(t.pipeline_id) FROM embedsidecar.task AS t WHERE t.state = 'retrying'
        AND t.pipeline_id > b.id) FROM retrying AS b WHERE b.id IS NOT NULL
), failed AS (
    SELECT (SELECT min(t.pipeline_id) FROM embedsidecar.task AS t WHERE t.state = 'failed') AS id
    UNION ALL SELECT (SELECT min(t.pipeline_id) FROM embedsidecar.task AS t WHERE t.state = 'failed'
        AND t.pipeline_id > b.id) FROM failed AS b WHERE b.id IS NOT NULL
), cancelled AS (
    SELECT (SELECT min(t.pipeline_id) FROM embedsidecar.task AS t WHERE t.state = 'cancelled') AS id
    UNION ALL SELECT (SELECT min(t.pipeline_id) FROM embedsidecar.task AS t WHERE t.state = 'cancelled'
        AND t.pipeline_id > b.id) FROM cancelled AS b WHERE b.id IS NOT NULL
)
SELECT a.id FROM (SELECT id FROM in_ledger WHERE NOT embedsidecar.keeps_ledger(id)
    UNION SELECT id FROM waiting UNION SELECT id FROM retrying UNION SELECT id
    FROM failed UNION SELECT id FROM cancelled UNION SELECT id FROM measured
                  UNION SELECT l.pipeline_id FROM embedsidecar.lease AS l) AS a
WHERE  a.id IS NOT NULL AND NOT EXISTS (SELECT FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = a.id)
ORDER BY a.id;
