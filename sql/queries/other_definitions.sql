-- other_definitions: the pipelines of @slot that are set up otherwise than @digests, by name, has them: the digest of
-- the definition that is set up (empty: of before there were digests) and its version, or 0 where it is not set up.
-- What another generation of a pipeline has is not otherwise: it is on its way. And those whose table in @tables
-- (schema and name, by name of the pipeline) is another one, replaced_by, than table_oid, with which they are set up,
-- or of which a joined table is; otherwise 0.
-- Rows: one for each. Locks: none. Index: the name of a pipeline; pg_class_relname_nsp_index.
SELECT m.key, coalesce(p.definition_version, 0),
       coalesce((SELECT d.key FROM jsonb_each_text(p.definitions) AS d
           WHERE d.value::integer = p.definition_version LIMIT 1), '') AS digest,
       o.differs, coalesce(r.table_oid, 0) AS table_oid, coalesce(r.oid, 0) AS replaced_by
FROM   jsonb_each_text(@digests) AS m LEFT JOIN embedsidecar.pipeline AS p ON p.name = m.key
       CROSS JOIN LATERAL (SELECT p.name IS NULL OR (p.definitions ->> m.value)::integer IS DISTINCT FROM
               p.definition_version AND NOT EXISTS (SELECT FROM embedsidecar.pipeline AS g
           WHERE g.beside = p.pipeline_id
               AND (g.definitions ->> m.value)::integer = g.definition_version)) AS o (differs)
       LEFT JOIN LATERAL (SELECT t.table_oid, c.oid
           FROM  (SELECT p.table_oid, @tables::jsonb -> m.key ->> 0, @tables::jsonb -> m.key ->> 1 UNION ALL
                  SELECT (j ->> 'oid')::oid, j ->> 'schema', j ->> 'table'
                  FROM   jsonb_path_query(p.joins, 'strict $.** ? (exists(@.oid))') AS j) AS t (table_oid, schema, name)
           -- not by its name alone: many schemas have a table of it
           JOIN LATERAL (SELECT c.oid, c.relkind FROM pg_class AS c WHERE c.relname = t.name::name AND c.relnamespace =
               (SELECT n.oid FROM pg_namespace AS n WHERE n.nspname = t.schema::name) OFFSET 0) AS c ON true
           WHERE c.relkind IN ('r', 'p') AND c.oid <> t.table_oid LIMIT 1) AS r ON true
WHERE  (p.name IS NULL OR p.slot_name = @slot::text::name) AND (o.differs OR r.oid IS NOT NULL);
