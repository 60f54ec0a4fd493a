-- declared_pipelines: the pipelines of @slot that are declared in the database, except those that are being dropped.
-- Rows: one each, by name. Locks: none.
SELECT d.name, d.definition::text AS definition, d.request_id
FROM   embedsidecar.declared AS d
WHERE  d.slot_name = @slot::text::name AND NOT EXISTS (SELECT FROM embedsidecar.request AS r
           WHERE r.state = 'waiting' AND r.action = 'drop' AND r.pipeline = d.name AND r.taken_by <> '')
ORDER BY d.name;
