-- take_request: the first request for a pipeline of @slot, which nobody else carries out.
-- Rows: one or none. Locks: the row. Index: requests that wait.
SELECT request_id, action, pipeline, definition::text AS definition, role_name::text, role_oid, said_by, tries
FROM   embedsidecar.take_request(@slot::text::name);
