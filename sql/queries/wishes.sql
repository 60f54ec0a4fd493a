-- wishes: model changes requested by SQL or HTTP that no sidecar has made or refused yet.
-- Rows: one each. Locks: none.
SELECT p.pipeline_id, p.name, coalesce(p.wish ->> 'model', '') AS model, coalesce(p.wish ->> 'plugin', '') AS plugin
FROM   embedsidecar.pipeline AS p
WHERE  p.slot_name = @slot AND p.wish IS NOT NULL AND p.wish ->> 'problem' IS NULL
ORDER BY p.pipeline_id;
