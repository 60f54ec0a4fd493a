-- audit_entries: actions before the entry @before, newest first.
-- Rows: at most @max. Locks: none. Index: primary key.
SELECT a.audit_id, a.acted_at, CASE WHEN NOT a.open THEN a.finished_at END AS finished_at,
    a.role_name::text AS role, a.said_by, coalesce(host(a.client_addr), '') AS client_addr,
    a.application, a.action,
       coalesce(a.pipeline, '') AS pipeline, a.arguments - 'pipeline_id' AS arguments, a.result, a.changed
FROM   embedsidecar.audit_log AS a
WHERE  a.audit_id < @before AND (@pipelines::text[] IS NULL OR a.pipeline = ANY (@pipelines::text[]))
ORDER BY a.audit_id DESC LIMIT @max;
