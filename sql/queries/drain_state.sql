-- drain_state: the progress of the pipelines @pipeline_ids with what was committed before @lsn: whether it is decoded;
-- rows left, in work, failed, cancelled, scheduled for later; whether a scan runs; why the pipeline does not work
-- (NULL: it does); whether a sidecar runs.
-- Rows: one for each, by name. Locks: none. Index: task_todo_idx, task_retry_idx, task_failed_idx, task_cancelled_idx,
-- by a function.
SELECT pipeline, decoded, remaining, running, failed, cancelled, put_off, scanning, coalesce(resting, '') AS resting,
       sidecar
FROM   embedsidecar.drain_state(@pipeline_ids::integer[], @lsn::pg_lsn);
