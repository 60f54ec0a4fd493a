-- other_definitions: the pipelines of @slot that are set up otherwise than @digests, by name, has them: the digest of
-- the definition that is set up (empty: of before there were digests) and its version, or 0 where it is not set up. What
-- another generation of a pipeline has is not otherwise: it is on its way.
-- Rows: one for each. Locks: none. Index: the name of a pipeline.
SELECT m.key, coalesce(p.definition_version, 0),
       coalesce((SELECT d.key FROM jsonb_each_text(p.definitions) AS d
           WHERE d.value::integer = p.definition_version LIMIT 1), '') AS digest
FROM   jsonb_each_text(@digests) AS m LEFT JOIN embedsidecar.pipeline AS p ON p.name = m.key
WHERE  p.name IS NULL OR p.slot_name = @slot::text::name AND (p.definitions ->> m.value)::integer IS DISTINCT FROM p.definition_version
       AND NOT EXISTS (SELECT FROM embedsidecar.pipeline AS g
           WHERE g.beside = p.pipeline_id AND (g.definitions ->> m.value)::integer = g.definition_version);
