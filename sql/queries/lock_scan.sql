-- lock_scan: take a pipeline's scan for one step, if it has something to do and nobody else is at it.
-- Rows: at most one. Locks: the scan row, SKIP LOCKED. Index: primary key.
SELECT s.phase, s.reason, s.after_key, s.requested, s.started, s.barrier <= pg_snapshot_xmin(pg_current_snapshot()) AS may_start
FROM   embedsidecar.scan AS s
WHERE  s.pipeline_id = @pipeline_id AND s.phase <> 'done'
FOR NO KEY UPDATE SKIP LOCKED;
