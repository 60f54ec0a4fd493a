-- stored_pipelines: pipelines as they are set up, and what the catalog says of them now. A table is published by its
-- own entry or schema, by those of a partitioned table above it, or because the publication is for all tables. A filter
-- hides changes if it is in the entry of the table itself or of a partition of it. Each look at the catalog judges the
-- same (pipeline_catalogue). An embedding table is found by its name. It is found by its number if no table has that
-- name any more, or if it lies in the schema of its source and that schema was renamed: another schema may have the old
-- name already. as_made: the generated columns are computed from the same columns as before. stored: the type of the
-- vectors; '': they are no longer there.
-- @slot: those of that slot; @only: those of these numbers; NULL: all.
-- Rows: one for each. Locks: none.
SELECT p.pipeline_id AS id, p.name, p.table_oid AS oid, p.table_schema::text AS schema, p.table_name::text AS table,
    p.source_columns::text[] AS columns, coalesce(p.text_expression, '') AS text,
    coalesce(p.filter_expression, '') AS filter, p.key_columns::text[],
    coalesce(p.watched_columns, '{}')::text[] AS watched, p.watched_columns IS NULL AS watch_all, p.functions,
    coalesce((SELECT jsonb_object_agg(n.key, a.attname) FROM jsonb_each_text(p.column_numbers) AS n
        JOIN pg_attribute AS a
        ON a.attrelid = p.table_oid AND a.attnum = n.value::int AND NOT a.attisdropped WHERE a.attname <> n.key),
        '{}') AS renamed,
    p.generated_columns <@ coalesce((SELECT jsonb_object_agg(a.attname,
    (SELECT coalesce(string_agg(quote_ident(b.attname), ',' ORDER BY b.attname), '') FROM pg_attribute AS b
        WHERE b.attrelid = a.attrelid AND b.attnum <> a.attnum AND EXISTS (SELECT FROM pg_depend AS d LEFT
        JOIN pg_attrdef AS f ON d.classid = 'pg_attrdef'::regclass AND f.oid = d.objid
            WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = a.attrelid AND d.refobjsubid = b.attnum
                AND (f.adrelid = a.attrelid AND f.adnum = a.attnum OR d.classid = 'pg_class'::regclass
                    AND d.objid = a.attrelid
                AND d.objsubid = a.attnum))))
        FROM pg_attribute AS a WHERE a.attrelid = p.table_oid AND a.attgenerated <> ''), '{}') AS as_made,
    coalesce(p.destination_column::text, '') AS into_column,
    coalesce(d.nspname, p.destination_schema, '')::text AS into_schema,
    coalesce(d.relname, p.destination_table, '')::text AS into_table, d.relname IS NOT NULL AS destination_moved,
    coalesce((SELECT y.typname::text FROM pg_attribute AS a JOIN pg_type AS y ON y.oid = a.atttypid
        WHERE a.attrelid = CASE WHEN p.destination_column IS NOT NULL THEN p.table_oid
                ELSE (SELECT c.oid FROM (SELECT n.oid FROM pg_namespace AS n -- first, since many schemas have the name
                          WHERE n.nspname = coalesce(d.nspname, p.destination_schema) OFFSET 0) AS n
                      CROSS JOIN LATERAL (SELECT c.oid FROM pg_class AS c WHERE c.relnamespace = n.oid
                          AND c.relname = coalesce(d.relname, p.destination_table) OFFSET 0) AS c) END
            AND NOT a.attisdropped AND a.attname = CASE WHEN p.destination_column IS NULL THEN 'embedding'
                ELSE coalesce((SELECT b.attname FROM pg_attribute AS b WHERE b.attrelid = p.table_oid
                        AND b.attnum = (p.column_numbers ->> p.destination_column::text)::smallint
                        AND NOT b.attisdropped), p.destination_column) END), '') AS stored,
    p.dims, p.plugin, p.model, p.chunking, p.generation, p.fingerprint, p.adopting, p.lane AS priority,
    coalesce(p.priority_expression, '') AS priority_by,
    coalesce(p.ignore_expression, '') AS ignore, coalesce(p.joins, '[]') AS joins, p.enabled,
    coalesce((SELECT NOT i.enabled FROM embedsidecar.installation AS i), false) AS halted,
    p.active_hours AS active, NOT embedsidecar.is_open(p.active_minutes, p.active_zone, p.open_until) AS closed,
    NOT embedsidecar.has_budget(p.budget, p.model_budget, p.pipeline_id) AS spent,
    EXISTS (SELECT FROM embedsidecar.batch_job AS j WHERE j.pipeline_id = p.pipeline_id
        AND j.state IN ('submitting', 'running', 'ended')
        AND NOT embedsidecar.has_budget(p.budget, p.model_budget, p.pipeline_id)) AS paid,
    coalesce(p.batch, '{}') AS batch, EXISTS (SELECT FROM embedsidecar.batch_job AS j
        WHERE j.pipeline_id = p.pipeline_id) AS jobs,
    coalesce(p.budget, '{}') AS budget, coalesce(p.model_budget, '{}') AS model_budget,
    coalesce(p.max_attempts, 0) AS max_attempts, p.labels,
    p.status, coalesce(p.beside, 0) AS beside_id, p.served, p.switches,
    p.wish IS NOT NULL AND p.wish ->> 'problem' IS NULL AS wished, p.slot_name::text,
    p.definition_version, p.definitions,
    coalesce(b.pubinsert AND b.pubupdate AND b.pubdelete AND b.pubtruncate AND NOT b.pubviaroot, false)
    AND NOT EXISTS (WITH RECURSIVE tree AS (SELECT p.table_oid AS relid UNION ALL SELECT h.inhrelid FROM tree AS t
       JOIN pg_inherits h ON h.inhparent = t.relid)
        SELECT FROM pg_publication_rel r JOIN tree AS t ON t.relid = r.prrelid JOIN pg_class c ON c.oid = p.table_oid
        WHERE (c.relkind = 'p' OR c.relispartition) AND r.prpubid = b.oid AND to_jsonb(r) ->> 'prqual' IS NOT NULL)
    AND (b.puballtables
        OR EXISTS (WITH RECURSIVE above AS (SELECT p.table_oid AS relid UNION ALL
                SELECT h.inhparent FROM above AS a JOIN pg_inherits AS h ON h.inhrelid = a.relid)
            SELECT FROM above AS t CROSS JOIN LATERAL (SELECT to_jsonb(r) ->> 'prqual' AS filter
                FROM pg_publication_rel AS r WHERE r.prrelid = t.relid AND r.prpubid = b.oid OFFSET 0) AS r
            WHERE r.filter IS NULL)
        -- from PostgreSQL 15 on; besides its tables, only its schemas depend on a publication
        OR EXISTS (WITH RECURSIVE above AS (SELECT p.table_oid AS relid UNION ALL
                SELECT h.inhparent FROM above AS a JOIN pg_inherits AS h ON h.inhrelid = a.relid)
            SELECT FROM above AS t JOIN pg_class AS c ON c.oid = t.relid
            WHERE c.relnamespace = ANY (ARRAY(SELECT s.refobjid FROM pg_depend AS d JOIN pg_depend AS s
                ON s.classid = d.classid AND s.objid = d.objid AND s.refclassid = 'pg_namespace'::regclass
                WHERE d.refclassid = 'pg_publication'::regclass AND d.refobjid = b.oid
                    AND d.classid <> 'pg_publication_rel'::regclass))))
    AND (b.puballtables OR NOT EXISTS (SELECT FROM embedsidecar.joined_tables(p.joins) AS j
        WHERE NOT EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = b.oid AND r.prrelid = j.oid
            AND to_jsonb(r) ->> 'prqual' IS NULL))) AS published
FROM   embedsidecar.pipeline p JOIN embedsidecar.lsn_checkpoint k ON k.slot_name = p.slot_name
       LEFT JOIN pg_publication b ON b.pubname = k.publication
       LEFT JOIN LATERAL (SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.oid = p.destination_oid AND c.relkind IN ('r', 'p') AND (NOT EXISTS (
            SELECT FROM (SELECT m.oid FROM pg_namespace AS m WHERE m.nspname = p.destination_schema OFFSET 0) AS m
                CROSS JOIN LATERAL (SELECT FROM pg_class AS o WHERE o.relnamespace = m.oid
                    AND o.relname = p.destination_table OFFSET 0) AS o)
            OR n.nspname <> p.destination_schema AND EXISTS (SELECT FROM pg_class s
            WHERE s.oid = p.table_oid AND s.relnamespace = c.relnamespace))) AS d ON true
WHERE  (@slot::text IS NULL OR p.slot_name = @slot::text::name)
       AND (@only::integer[] IS NULL OR p.pipeline_id = ANY (@only::integer[]))
ORDER BY p.pipeline_id;
