-- leaving_pipelines: the pipelines @names of @slot, which the configuration of the sidecar number @me lacks: the file
-- that they come from, whether another running sidecar has them (or does not report what it has), and whether their
-- table was dropped.
-- Rows: one each. Locks: none. Index: the name of a pipeline.
SELECT p.name, p.origin,
       EXISTS (SELECT FROM embedsidecar.configured AS c WHERE c.configured_id <> @me AND embedsidecar.lives(c)
           AND (c.digests IS NULL OR c.digests ? p.name)) AS held,
       NOT EXISTS (SELECT FROM pg_class AS t WHERE t.oid = p.table_oid) AS gone
FROM   embedsidecar.pipeline AS p
WHERE  p.slot_name = @slot::text::name AND p.name = ANY (@names::text[]) AND p.beside IS NULL;
