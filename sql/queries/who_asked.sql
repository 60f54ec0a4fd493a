-- who_asked: the role that requested a declared pipeline, by @request, or by the newer request that changed it since.
-- Rows: one, or none: the request is not kept. Locks: none. Index: primary keys.
SELECT r.role_name::text, r.role_oid, r.said_by
FROM   embedsidecar.request AS r
WHERE  r.request_id = greatest(@request::bigint, (SELECT d.request_id FROM embedsidecar.declared AS d
           WHERE d.name = @pipeline));
