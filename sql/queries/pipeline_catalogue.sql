-- pipeline_catalogue: what the catalogue says now of each pipeline's table, beside what it said when the pipeline was whole.
-- Some changes send nothing through the slot at all (ALTER TYPE USING, DETACH and DROP of a partition, a publication that is
-- missing for a while): they are known by these marks. One statement serves as the heartbeat.
-- Rows: one per pipeline of the slot; exists is false when the table is gone.
SELECT p.pipeline_id, p.status, p.catalogue AS known, c.oid IS NOT NULL AS table_exists,
       coalesce(n.nspname, '') AS table_schema, coalesce(c.relname, '') AS table_name,
       CASE WHEN c.oid IS NULL THEN '{}'::jsonb ELSE jsonb_build_object(
           'name', format('%I.%I', n.nspname, c.relname),
           -- pg_partition_tree gives nothing for a plain table: hence the union.
           'storage', (SELECT md5(string_agg(t.relid::text || ':' || coalesce(pg_relation_filenode(t.relid), 0)::text, ',' ORDER BY t.relid))
                       FROM (SELECT relid::oid FROM pg_partition_tree(c.oid) UNION SELECT c.oid) AS t (relid)),
           'columns', (SELECT md5(string_agg(concat_ws(':', a.attnum, a.attname, a.atttypid, a.atttypmod, a.attisdropped), ',' ORDER BY a.attnum))
                       FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum > 0),
           'identity', c.relreplident::text || coalesce((SELECT string_agg(i.indexrelid::text, ',' ORDER BY i.indexrelid) FROM pg_index AS i
                       WHERE i.indrelid = c.oid AND (i.indisprimary OR i.indisreplident)), ''),
           'security', c.relrowsecurity::text || c.relforcerowsecurity::text,
           'published', coalesce((SELECT r.oid FROM pg_publication_rel AS r WHERE r.prpubid = b.oid AND r.prrelid = c.oid), 0)::text
                       || coalesce(b.puballtables::text, '')) END AS current,
       b.oid IS NOT NULL AS publication_exists,
       coalesce(b.oid = k.publication_oid, false) AS same_publication,
       coalesce(b.puballtables, false)
           OR EXISTS (SELECT FROM pg_publication_rel AS r WHERE r.prpubid = b.oid AND r.prrelid = c.oid)
           OR EXISTS (SELECT FROM pg_publication_tables AS v WHERE v.pubname = b.pubname AND v.schemaname = n.nspname AND v.tablename = c.relname)
           AS published,
       -- What a running sidecar must load anew when it changes.
       md5(ROW(i.enabled, p.enabled, p.generation, p.fingerprint, p.text_expression, p.filter_expression, p.source_columns, p.watched_columns,
               p.key_columns, p.lane, p.dims, p.plugin, p.model, p.destination_column, p.destination_schema, p.destination_table)::text) AS version,
       EXISTS (SELECT FROM embedsidecar.scan AS s WHERE s.pipeline_id = p.pipeline_id AND s.phase = 'waiting') AS scan_asked
FROM   embedsidecar.pipeline AS p
       JOIN embedsidecar.lsn_checkpoint AS k ON k.slot_name = p.slot_name
       CROSS JOIN embedsidecar.installation AS i
       LEFT JOIN pg_class AS c ON c.oid = p.table_oid
       LEFT JOIN pg_namespace AS n ON n.oid = c.relnamespace
       LEFT JOIN pg_publication AS b ON b.pubname = k.publication
WHERE  p.slot_name = @slot
ORDER BY p.pipeline_id;
