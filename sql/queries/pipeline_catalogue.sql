-- pipeline_catalogue: what the catalog says now of each pipeline's table, beside what it said when the pipeline was
-- last complete. Some changes send nothing through the slot (ALTER TYPE USING, DETACH and DROP of a partition, a
-- publication that is missing for a while); these marks reveal them. One statement serves as the heartbeat. OFFSET 0
-- makes it look up each table by its number: with a thousand pipelines the server would otherwise read all of pg_class
-- and of the publication for each.
-- @pipeline: only that one; NULL: all.
-- Rows: one per pipeline of the slot; exists is false if the table was dropped; version changes with everything that a
-- running sidecar must load again, such as a pause. standby_names: whom commits of the server wait for.
WITH publication AS MATERIALIZED ( -- once for all pipelines
    SELECT k.slot_name, k.publication_oid, b.oid, b.xmin AS version, b.pubname, b.puballtables,
           b.pubinsert AND b.pubupdate AND b.pubdelete AND b.pubtruncate AND NOT b.pubviaroot AS whole,
           (SELECT string_agg(d.objid::text, ',' ORDER BY d.objid) FROM pg_depend AS d
            WHERE d.refclassid = 'pg_publication'::regclass AND d.refobjid = b.oid
                AND d.classid <> 'pg_publication_rel'::regclass) AS schemas,
           ARRAY(SELECT s.refobjid FROM pg_depend AS d JOIN pg_depend AS s ON s.classid = d.classid
               AND s.objid = d.objid AND s.refclassid = 'pg_namespace'::regclass
            WHERE d.refclassid = 'pg_publication'::regclass AND d.refobjid = b.oid
                AND d.classid <> 'pg_publication_rel'::regclass) AS whole_schemas
    FROM   embedsidecar.lsn_checkpoint AS k LEFT JOIN pg_publication AS b ON b.pubname = k.publication
    WHERE  k.slot_name = @slot)
SELECT p.pipeline_id, p.status, p.catalogue AS known, c.oid IS NOT NULL AS table_exists,
       coalesce(n.nspname, '') AS table_schema, coalesce(c.relname, '') AS table_name,
       CASE WHEN c.oid IS NULL THEN '{}'::jsonb ELSE jsonb_build_object(
           'name', format('%I.%I', n.nspname, c.relname),
           -- A recursive query, because pg_partition_tree locks the user's partitions. A partition's pg_inherits entry
           -- is part of its mark: a partition that was detached, changed and attached again has a new entry. Each
           -- partition has its own mark with its replica identity, so that only changed partitions are compared.
           'storage', CASE WHEN NOT c.relhassubclass THEN to_jsonb(CASE WHEN c.relkind <> 'p' THEN
                           c.oid::text || ':' || c.relfilenode::text || ':' END)
                      ELSE (WITH RECURSIVE tree AS (
                           SELECT c.oid AS relid, '' AS entry
                           UNION ALL
                           SELECT h.inhrelid, h.xmin::text FROM tree AS t
                               JOIN pg_inherits AS h ON h.inhparent = t.relid)
                       SELECT CASE c.relkind
                           WHEN 'p' THEN jsonb_object_agg(t.relid,
                           concat_ws(':', f.relfilenode, t.entry, f.relreplident,
                                  CASE f.relreplident WHEN 'i' THEN (SELECT i.indexrelid FROM pg_index AS i
                                      WHERE i.indrelid = f.oid AND i.indisreplident) END)) FILTER
                                      (WHERE f.relkind = 'r')
                              ELSE to_jsonb(string_agg(t.relid::text || ':' || f.relfilenode::text || ':' || t.entry,
                                  ',' ORDER BY t.relid)) END
                       FROM tree AS t CROSS JOIN LATERAL (SELECT f.* FROM pg_class AS f WHERE f.oid = t.relid
                           OFFSET 0) AS f) END,
           -- Also by their xmin: columns that were renamed and renamed back stood for others meanwhile, and so did
           -- their changes. Generation expressions in their stored form, because pg_get_expr locks the table.
           'columns',
               (SELECT encode(sha256(convert_to(string_agg(concat_ws(':', a.attnum, a.xmin, a.attname, a.atttypid,
               a.atttypmod, a.attisdropped,
                                                      CASE WHEN a.attgenerated <> '' THEN a.attgenerated::text
                                                          || (SELECT encode(sha256(convert_to(g.adbin::text,
                                                          getdatabaseencoding())), 'hex')
                                                           FROM pg_attrdef AS g WHERE g.adrelid = a.attrelid
                                                               AND g.adnum = a.attnum) END), ',' ORDER BY a.attnum),
                                                               getdatabaseencoding())), 'hex')
                       FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum > 0),
           -- Users' types: a renamed enum label, or a new attribute of a composite type, changes what rows say, also
           -- those of joined tables.
           'types', CASE WHEN EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = ANY (c.oid || joined.oids)
               AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384) THEN (WITH RECURSIVE used AS (
                         SELECT a.atttypid AS typ FROM pg_attribute AS a WHERE a.attrelid = ANY (c.oid || joined.oids)
                             AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384
                         UNION
                         SELECT m.typ FROM used AS u JOIN pg_type AS t ON t.oid = u.typ CROSS JOIN LATERAL (
                             SELECT t.typelem UNION ALL SELECT t.typbasetype
                             UNION ALL SELECT f.atttypid FROM pg_attribute AS f WHERE t.typtype = 'c'
                                 AND f.attrelid = t.typrelid AND f.attnum > 0 AND NOT f.attisdropped
                             UNION ALL SELECT g.rngsubtype FROM pg_range AS g WHERE g.rngtypid = t.oid) AS m (typ)
                         WHERE m.typ >= 16384)
                     SELECT encode(sha256(convert_to(string_agg(d.what, ',' ORDER BY u.typ), getdatabaseencoding())),
                         'hex')
                     FROM used AS u JOIN pg_type AS t ON t.oid = u.typ CROSS JOIN LATERAL (
                         SELECT string_agg(concat_ws(':', l.oid, l.xmin, l.enumlabel), ',' ORDER BY l.oid)
                             FROM pg_enum AS l WHERE l.enumtypid = t.oid
                         UNION ALL SELECT string_agg(k.oid::text, ',' ORDER BY k.oid) FROM pg_cast AS k
                             WHERE k.castfunc <> 0 AND t.oid IN (k.castsource, k.casttarget)
                         UNION ALL SELECT string_agg(concat_ws(':', f.attnum, f.xmin, f.atttypid, f.atttypmod,
                             f.attisdropped), ',' ORDER BY f.attnum)
                         FROM pg_attribute AS f WHERE t.typtype = 'c' AND f.attrelid = t.typrelid
                             AND f.attnum > 0) AS d (what)) END,
           -- Users' functions that text and filter call, by name, and the functions that these are known to call.
           'functions', CASE WHEN cardinality(p.functions) > 0 THEN (WITH RECURSIVE called AS (
                             SELECT f.oid FROM unnest(p.functions) AS u (name) CROSS
                                 JOIN LATERAL parse_ident(u.name) AS part
                                 JOIN pg_namespace AS fn ON fn.nspname = part[1]
                                     JOIN pg_proc AS f ON f.proname = part[2] AND f.pronamespace = fn.oid
                             UNION
                             SELECT d.refobjid FROM called AS h JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass
                                 AND d.objid = h.oid
                             WHERE d.refclassid = 'pg_proc'::regclass)
                         SELECT coalesce(encode(sha256(convert_to(string_agg(f.oid::text || ':' || f.xmin::text, ','
                             ORDER BY f.oid), getdatabaseencoding())), 'hex'), '')
                         FROM called AS h JOIN pg_proc AS f ON f.oid = h.oid) ELSE '' END,
           'identity', c.relreplident::text
               || coalesce((SELECT string_agg(i.indexrelid::text, ',' ORDER BY i.indexrelid) FROM pg_index AS i
                       WHERE i.indrelid = c.oid AND (i.indisprimary OR i.indisreplident)), ''),
           'security', c.relrowsecurity::text || c.relforcerowsecurity::text,
           -- An embedding table is not published: only this shows that it, or a partition of it, was emptied or
           -- recreated. One hash for all partitions: no row says which of them has its vector.
           'destination', (SELECT concat_ws(':', d.oid, d.relfilenode, d.relrowsecurity, d.relforcerowsecurity,
                               CASE WHEN d.relhassubclass THEN (WITH RECURSIVE tree AS (
                                   SELECT h.inhrelid, h.xmin::text AS entry FROM pg_inherits AS h
                                   WHERE h.inhparent = d.oid
                                   UNION ALL
                                   SELECT h.inhrelid, h.xmin::text FROM tree AS t
                                       JOIN pg_inherits AS h ON h.inhparent = t.inhrelid)
                               SELECT encode(sha256(convert_to(string_agg(concat_ws(':', t.inhrelid, f.relfilenode,
                                   t.entry), ',' ORDER BY t.inhrelid), getdatabaseencoding())), 'hex')
                               FROM tree AS t CROSS JOIN LATERAL (SELECT f.relfilenode FROM pg_class AS f
                                   WHERE f.oid = t.inhrelid OFFSET 0) AS f) END)
                           FROM pg_class AS d WHERE d.oid = destination.oid),
           -- By its xmin, not by its content: a publication may have been altered and altered back meanwhile. The same
           -- for the entries of this table, its parents and its partitions; an entry is never altered, but recreated.
           -- Besides its tables, only its schemas depend on a publication, from PostgreSQL 15 on.
           'published', (SELECT concat_ws(' ', b.oid, b.version,
                             (SELECT string_agg(r.oid::text, ',' ORDER BY r.oid)
                                 FROM unnest(family.below || family.above[2:]) AS t (relid) CROSS JOIN LATERAL
                                     (SELECT r.oid FROM pg_publication_rel AS r WHERE r.prrelid = t.relid
                                         AND r.prpubid = b.oid OFFSET 0) AS r),
                             b.schemas)))
           -- Columns whose names others have now, while they live on under other names (note_catalogue).
           || coalesce((SELECT jsonb_build_object('taken', jsonb_object_agg(a.attname, a.attnum))
               FROM pg_attribute AS a JOIN pg_attribute AS l ON l.attrelid = a.attrelid
                   AND l.attnum = (p.column_numbers ->> a.attname::text)::smallint
               WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND l.attnum <> a.attnum
                   AND NOT l.attisdropped AND (p.watched_columns IS NULL OR p.joins IS NOT NULL
                       OR a.attname = ANY (p.key_columns || p.source_columns || p.watched_columns
                           || p.destination_column))
               HAVING count(*) > 0), '{}')
           || CASE WHEN p.joins IS NULL THEN '{}'::jsonb ELSE jsonb_build_object('joins',
               (SELECT jsonb_agg(concat_ws(':', j.oid, jc.relfilenode, jc.relkind, jc.relreplident, jc.relrowsecurity,
                   jc.relforcerowsecurity, quote_ident(jn.nspname) || '.' || quote_ident(jc.relname),
                   (SELECT string_agg(i.indexrelid::text, ',' ORDER BY i.indexrelid) FROM pg_index AS i
                       WHERE i.indrelid = jc.oid AND (i.indisprimary OR i.indisreplident)),
                   (SELECT string_agg(r.oid::text, ',' ORDER BY r.oid) FROM pg_publication_rel AS r
                       WHERE r.prpubid = b.oid AND r.prrelid = jc.oid),
                   (SELECT encode(sha256(convert_to(string_agg(concat_ws(':', a.attnum, a.xmin, a.attname, a.atttypid,
                       a.atttypmod, a.attisdropped), ',' ORDER BY a.attnum), getdatabaseencoding())), 'hex')
                       FROM pg_attribute AS a WHERE a.attrelid = jc.oid AND a.attnum > 0)) ORDER BY j.oid)
               FROM embedsidecar.joined_tables(p.joins) AS j LEFT JOIN pg_class AS jc ON jc.oid = j.oid
                   LEFT JOIN pg_namespace AS jn ON jn.oid = jc.relnamespace)) END END AS current,
       b.oid IS NOT NULL AS publication_exists,
       coalesce(b.oid = b.publication_oid, false) AS same_publication,
       coalesce(b.whole, false)
           -- The filter of a partition's own entry overrides that of its partitioned table.
           AND NOT ((c.relkind = 'p' OR c.relispartition) AND EXISTS (SELECT FROM pg_publication_rel AS r
               WHERE r.prrelid = ANY (family.below) AND r.prpubid = b.oid AND to_jsonb(r) ->> 'prqual' IS NOT NULL))
           AND (b.puballtables
                OR EXISTS (SELECT FROM unnest(family.above) AS t (relid) CROSS JOIN LATERAL
                               (SELECT to_jsonb(r) ->> 'prqual' AS filter FROM pg_publication_rel AS r
                               WHERE r.prrelid = t.relid AND r.prpubid = b.oid OFFSET 0) AS r WHERE r.filter IS NULL)
                OR EXISTS (SELECT FROM unnest(family.above) AS t (relid) CROSS JOIN LATERAL
                               (SELECT s.relnamespace FROM pg_class AS s WHERE s.oid = t.relid OFFSET 0) AS s
                           WHERE s.relnamespace = ANY (b.whole_schemas)))
           AND (b.puballtables OR NOT EXISTS (SELECT FROM embedsidecar.joined_tables(p.joins) AS j
               JOIN pg_class AS jc ON jc.oid = j.oid
               WHERE NOT EXISTS (SELECT FROM pg_publication_rel AS r WHERE r.prpubid = b.oid AND r.prrelid = j.oid
                   AND to_jsonb(r) ->> 'prqual' IS NULL)))
           AS published,
       -- What a running sidecar must load again when it changes. Also by xmin: a change may be loaded after this read
       -- and reverted before the next one.
       encode(sha256(convert_to(ROW(i.xmin, p.xmin, embedsidecar.is_open(p.active_minutes, p.active_zone, p.open_until),
           (SELECT ROW(d.relname, d.relnamespace) FROM pg_class AS d WHERE d.oid = p.destination_oid),
           embedsidecar.has_budget(p.budget, p.model_budget, p.pipeline_id),
               (SELECT string_agg(concat_ws(':', t.oid, t.xmin), ',' ORDER BY t.oid) FROM pg_trigger AS t
                WHERE NOT t.tgisinternal AND t.tgrelid = ANY (family.below)),
               -- Owners, and whether they are trusted: a role may lose what made it trusted.
               (SELECT string_agg(DISTINCT concat_ws(':', w.owner, r.rolsuper, pg_has_role(w.owner, session_user,
                    CASE WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER'
                        ELSE 'USAGE, SET, MEMBER WITH ADMIN OPTION' END)), ',')
                FROM (SELECT f.relowner FROM unnest(family.below || p.destination_oid || joined.oids) AS t (relid)
                          CROSS JOIN LATERAL (SELECT f.relowner FROM pg_class AS f WHERE f.oid = t.relid OFFSET 0) AS f
                      UNION SELECT n.nspowner
                      UNION SELECT d.datdba FROM pg_database AS d WHERE d.datname = current_database()
                      UNION SELECT o.owner
                      FROM  unnest(p.functions) AS u (name) CROSS JOIN LATERAL parse_ident(u.name) AS part
                          JOIN pg_namespace AS fn ON fn.nspname = part[1]
                          JOIN pg_proc AS f ON f.proname = part[2] AND f.pronamespace = fn.oid
                          CROSS JOIN LATERAL (VALUES (f.proowner), (fn.nspowner)) AS o (owner)) AS w (owner)
                    CROSS JOIN LATERAL (SELECT r.rolsuper FROM pg_roles AS r WHERE r.oid = w.owner OFFSET 0) AS r)
               )::text, getdatabaseencoding())), 'hex') AS version,
       EXISTS (SELECT FROM embedsidecar.scan AS s WHERE s.pipeline_id = p.pipeline_id
           AND s.phase = 'waiting') AS scan_asked,
       current_setting('synchronous_standby_names') AS standby_names
FROM   embedsidecar.pipeline AS p
       JOIN publication AS b ON b.slot_name = p.slot_name
       CROSS JOIN embedsidecar.installation AS i
       LEFT JOIN pg_class AS c ON c.oid = p.table_oid
       LEFT JOIN pg_namespace AS n ON n.oid = c.relnamespace
       -- The table with its partitions and its parents, in one walk: a walk costs more than lookups.
       CROSS JOIN LATERAL (SELECT
           CASE WHEN c.relhassubclass THEN ARRAY(WITH RECURSIVE tree AS (SELECT c.oid AS relid UNION
               SELECT h.inhrelid FROM tree AS t JOIN pg_inherits AS h ON h.inhparent = t.relid)
               SELECT relid FROM tree) ELSE ARRAY[c.oid] END AS below,
           CASE WHEN EXISTS (SELECT FROM pg_inherits AS h WHERE h.inhrelid = c.oid) THEN
               ARRAY(WITH RECURSIVE tree AS (SELECT c.oid AS relid UNION
               SELECT h.inhparent FROM tree AS t JOIN pg_inherits AS h ON h.inhrelid = t.relid)
               SELECT relid FROM tree) ELSE ARRAY[c.oid] END AS above OFFSET 0) AS family
       CROSS JOIN LATERAL (SELECT CASE WHEN p.joins IS NOT NULL THEN ARRAY(SELECT j.oid
           FROM embedsidecar.joined_tables(p.joins) AS j) END AS oids OFFSET 0) AS joined
       -- The embedding table: by its number if no table has its name any more, as in stored_pipelines.
       CROSS JOIN LATERAL (SELECT coalesce((
           SELECT d.oid FROM pg_class AS d WHERE d.relname = p.destination_table AND d.relnamespace =
               (SELECT dn.oid FROM pg_namespace AS dn WHERE dn.nspname = p.destination_schema)
               AND NOT EXISTS (SELECT FROM pg_class AS k WHERE k.oid = p.destination_oid
                   AND k.relnamespace = c.relnamespace AND k.relnamespace <> d.relnamespace)),
           p.destination_oid) AS oid OFFSET 0) AS destination
WHERE  @pipeline::integer IS NULL OR p.pipeline_id = @pipeline
ORDER BY p.pipeline_id;
