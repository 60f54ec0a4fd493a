-- drop_leftovers: delete a portion of what a removed pipeline has left: entries of its ledger after @after, unless the
-- ledger is kept; tasks, leases and measures. Nothing else uses them.
-- Rows: one: how many rows were deleted, and the last key of the ledger among them (NULL: none is left after @after).
-- Locks: the rows.
-- Index: primary keys of ledger, lease and measure, task_todo_idx, task_retry_idx, task_failed_idx, task_cancelled_idx.
WITH gone AS MATERIALIZED (
    SELECT WHERE NOT EXISTS (SELECT FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = @pipeline_id)
), entries AS (
    DELETE FROM embedsidecar.ledger AS l
    WHERE  EXISTS (SELECT FROM gone WHERE NOT embedsidecar.keeps_ledger(@pipeline_id))
           AND l.pipeline_id = @pipeline_id AND l.row_key = ANY (ARRAY(
               SELECT f.row_key FROM embedsidecar.ledger AS f
               WHERE  f.pipeline_id = @pipeline_id AND (@after::text IS NULL OR f.row_key > @after::text COLLATE "C")
               ORDER BY f.row_key LIMIT @max))
    RETURNING l.row_key
), tasks AS (
    DELETE FROM embedsidecar.task AS t
    WHERE  EXISTS (SELECT FROM gone) AND t.task_id = ANY (
               ARRAY(SELECT f.task_id FROM embedsidecar.task AS f WHERE f.pipeline_id = @pipeline_id
                   AND f.state = 'todo' LIMIT @max FOR UPDATE SKIP LOCKED)
               || ARRAY(SELECT f.task_id FROM embedsidecar.task AS f WHERE f.pipeline_id = @pipeline_id
                   AND f.state = 'retrying' LIMIT @max FOR UPDATE SKIP LOCKED)
               || ARRAY(SELECT f.task_id FROM embedsidecar.task AS f WHERE f.pipeline_id = @pipeline_id
                   AND f.state = 'failed' LIMIT @max FOR UPDATE SKIP LOCKED)
               || ARRAY(SELECT f.task_id FROM embedsidecar.task AS f WHERE f.pipeline_id = @pipeline_id
                   AND f.state = 'cancelled' LIMIT @max FOR UPDATE SKIP LOCKED))
    RETURNING t.task_id
), leases AS (
    DELETE FROM embedsidecar.lease AS l WHERE EXISTS (SELECT FROM gone) AND l.pipeline_id = @pipeline_id
    RETURNING l.place
), measures AS (
    DELETE FROM embedsidecar.measure AS m WHERE EXISTS (SELECT FROM gone) AND m.pipeline_id = @pipeline_id
    RETURNING m.place
)
SELECT (SELECT count(*) FROM entries) + (SELECT count(*) FROM tasks) + (SELECT count(*) FROM leases)
    + (SELECT count(*) FROM measures) AS rows,
    (SELECT max(e.row_key) FROM entries AS e) AS last;
