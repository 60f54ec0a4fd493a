-- read_scan: what a pipeline's scan has to do next, if anything.
-- Rows: at most one. Locks: none. Index: primary key.
SELECT s.phase, s.reason, s.after_key, s.requested, s.started, s.barrier <= pg_snapshot_xmin(pg_current_snapshot()) AS may_start
FROM   embedsidecar.scan AS s
WHERE  s.pipeline_id = @pipeline_id AND s.phase <> 'done';
