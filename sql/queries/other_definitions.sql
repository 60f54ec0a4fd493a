-- other_definitions: the pipelines of @slot whose definition differs from that in @digests, by name: the digest of the
-- definition that is set up (empty: from before there were digests) and its version, or 0 if the pipeline is not set
-- up. The definition of a pipeline's other generation does not count: it is on its way. Also those whose table in
-- @tables (schema and name, by name of the pipeline), or a joined table, is another one (replaced_by) than the one that
-- they were set up with (table_oid); otherwise 0.
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
           -- not by its name alone: many schemas may have such a table
           JOIN LATERAL (SELECT c.oid, c.relkind FROM pg_class AS c WHERE c.relname = t.name::name AND c.relnamespace =
               (SELECT n.oid FROM pg_namespace AS n WHERE n.nspname = t.schema::name) OFFSET 0) AS c ON true
           WHERE c.relkind IN ('r', 'p') AND c.oid <> t.table_oid LIMIT 1) AS r ON true
WHERE  (p.name IS NULL OR p.slot_name = @slot::text::name) AND (o.differs OR r.oid IS NOT NULL);
