-- what_changed: whether the row @me tells what a sidecar is configured with, whether requests for pipelines of @slot
-- wait, and the numbers of those that declared_pipelines were last changed by, in the order of their names.
-- Rows: one. Locks: none. Index: primary key of configured; requests that wait.
SELECT EXISTS (SELECT FROM embedsidecar.configured AS c WHERE c.configured_id = @me) AS told,
       EXISTS (SELECT FROM embedsidecar.request AS r WHERE r.state = 'waiting' AND r.slot_name = @slot::text::name)
           AS asked,
       coalesce((SELECT string_agg(d.request_id::text, ' ' ORDER BY d.name) FROM embedsidecar.declared AS d
           WHERE d.slot_name = @slot::text::name AND NOT EXISTS (SELECT FROM embedsidecar.request AS r
               WHERE r.state = 'waiting' AND r.action = 'drop' AND r.pipeline = d.name AND r.taken_by <> '')), '')
           AS declared;
