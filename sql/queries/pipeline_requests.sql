-- pipeline_requests: the newest requests for pipelines, or the one with number @id, and the progress of each.
-- Rows: up to @most, newest first. Locks: none. Index: primary key.
SELECT r.request_id, r.action, r.pipeline, r.definition,
       CASE WHEN r.finished_at IS NOT NULL THEN r.state WHEN r.taken_by <> '' THEN 'in_work' ELSE 'waiting' END
           AS state,
       CASE WHEN r.finished_at IS NULL THEN embedsidecar.waits_for(r) ELSE r.reason END AS reason, r.hints,
       r.role_name::text AS role, r.said_by, r.requested_at, r.finished_at, r.dry_run, r.plan
FROM   embedsidecar.request AS r
WHERE  @id::bigint IS NULL OR r.request_id = @id
ORDER BY r.request_id DESC LIMIT @most::integer;
