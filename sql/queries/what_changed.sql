-- what_changed: whether the row @me with the sidecar's configuration exists, whether requests for pipelines of @slot
-- wait, the numbers of the requests that last changed those of declared_pipelines, in the order of their names, and the
-- pipelines that another sidecar of the same file has, or had when it ended, and this one does not.
-- Rows: one. Locks: none. Index: primary key of configured; requests that wait.
SELECT EXISTS (SELECT FROM embedsidecar.configured AS c WHERE c.configured_id = @me) AS told,
       EXISTS (SELECT FROM embedsidecar.request AS r WHERE r.state IN ('waiting', 'to_plan')
           AND r.slot_name = @slot::text::name) AS asked,
       coalesce((SELECT string_agg(d.request_id::text, ' ' ORDER BY d.name) FROM embedsidecar.declared AS d
           WHERE d.slot_name = @slot::text::name AND NOT EXISTS (SELECT FROM embedsidecar.request AS r
               WHERE r.state = 'waiting' AND r.action = 'drop' AND r.pipeline = d.name AND r.taken_by <> '')), '')
           AS declared,
       ARRAY(SELECT k.name FROM embedsidecar.configured AS c JOIN embedsidecar.configured AS o
                 ON o.configured_id <> c.configured_id AND o.slot_name = c.slot_name AND o.file = c.file
                 CROSS JOIN LATERAL jsonb_object_keys(o.digests) AS k (name)
             WHERE c.configured_id = @me AND c.file <> '' AND NOT c.digests ? k.name) AS others;
