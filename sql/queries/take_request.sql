-- take_request: the first request for a pipeline of @slot that no other session carries out; a dry run is only planned.
-- Rows: one or none. Locks: the row. Index: requests that wait.
SELECT request_id, action, pipeline, definition::text AS definition, role_name::text, role_oid, said_by, tries, dry_run
FROM   embedsidecar.next_request(@slot::text::name);
