-- drain_state: how far the pipelines @pipeline_ids are with what was committed before @lsn: decoded, rows left, in
-- work, given up, cancelled, put off; whether a scan is not over, why it does not work (NULL: it does), whether a
-- sidecar runs.
-- Rows: one for each, by name. Locks: none. Index: task_todo_idx, task_retry_idx, task_failed_idx, task_cancelled_idx,
-- by a function.
SELECT pipeline, decoded, remaining, running, failed, cancelled, put_off, scanning, coalesce(resting, '') AS resting,
       sidecar
FROM   embedsidecar.drain_state(@pipeline_ids::integer[], @lsn::pg_lsn);
