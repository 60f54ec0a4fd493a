-- How fast a sidecar works, where it runs and what it does, what was saved, and that plugins were reloaded.

-- What embedders and loops do a second, so that whoever looks once can tell when a backlog ends.
ALTER TABLE embedsidecar.worker ADD COLUMN speeds jsonb NOT NULL DEFAULT '{}';
COMMENT ON COLUMN embedsidecar.worker.speeds IS 'What it has done of late in a second, by pipeline_id: rows, texts, calls of the embedder, and milliseconds of a call. Written every ten seconds while something is done.';

CREATE OR REPLACE VIEW embedsidecar.workers AS
SELECT w.worker_id, w.instance, w.version, w.slot_name, w.stream, w.stream_detail, w.problems, w.started_at, w.last_seen_at,
       w.last_seen_at > now() - interval '5 minutes' AND (w.session_name = '' OR EXISTS (SELECT FROM pg_stat_activity AS a
           WHERE a.datname = current_database() AND a.application_name = w.session_name AND a.pid <> pg_backend_pid())) AS runs,
       (SELECT coalesce(sum(cardinality(l.task_ids)), 0) FROM embedsidecar.lease AS l WHERE l.worker_id = w.worker_id AND l.leased_until >= now()) AS rows_leased,
       w.succeeded_24h + w.failed_24h AS processed_24h, w.succeeded_24h, w.failed_24h, w.last_batch_at, w.role, w.host, w.speeds
FROM   embedsidecar.worker AS w;
COMMENT ON COLUMN embedsidecar.workers.role IS 'What it does: all, stream or work; empty: a version of before has not said it.';
COMMENT ON COLUMN embedsidecar.workers.host IS 'The name of its machine, as that has it.';
COMMENT ON COLUMN embedsidecar.workers.speeds IS 'What it has done of late in a second, by pipeline_id: rows, texts, calls of the embedder, and milliseconds of a call.';

-- What was saved: rows and changes that needed no embedder, by reason, as tokens_embedded is what was spent.
ALTER TABLE embedsidecar.pipeline
    ADD COLUMN texts_embedded bigint NOT NULL DEFAULT 0,
    ADD COLUMN texts_reused   bigint NOT NULL DEFAULT 0,
    ADD COLUMN rows_unchanged bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN embedsidecar.pipeline.texts_embedded IS 'Texts of its rows, or of their chunks, that an embedder was asked for; this and the next two are written once a minute and when a sidecar ends.';
COMMENT ON COLUMN embedsidecar.pipeline.texts_reused IS 'Texts that had a vector already.';
COMMENT ON COLUMN embedsidecar.pipeline.rows_unchanged IS 'Rows that were looked at and needed nothing.';
ALTER TABLE embedsidecar.lsn_checkpoint
    ADD COLUMN changes_unchanged bigint NOT NULL DEFAULT 0,
    ADD COLUMN changes_joined    bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN embedsidecar.lsn_checkpoint.changes_unchanged IS 'Changes of rows that touched neither text nor vector, as the WAL alone told; this and the next are written once a minute and when a sidecar ends.';
COMMENT ON COLUMN embedsidecar.lsn_checkpoint.changes_joined IS 'Changes of rows that waited already, and were embedded with the change before.';

-- That a plugin was reloaded is done by no statement: the sidecar that did it says so.
CREATE FUNCTION embedsidecar.note_reload(plugin text, model text, version text, result text, said_by text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    entry embedsidecar.audit_log;
BEGIN
    IF note_reload.result IS NULL OR note_reload.result NOT IN ('reloaded', 'refused') THEN
        RAISE EXCEPTION 'note_reload: result: expected reloaded or refused, not %', coalesce(note_reload.result, 'NULL') USING ERRCODE = 'invalid_parameter_value';
    END IF;
    entry := embedsidecar.begin_action('reload', NULL, jsonb_build_object('plugin', left(note_reload.plugin, 200), 'model', left(note_reload.model, 200),
        'version', left(note_reload.version, 200)), note_reload.said_by, NULL, 1, NULL, false);
    PERFORM embedsidecar.end_action(entry.audit_id, note_reload.result, 0, NULL);
    RETURN entry.audit_id;
END $$;
COMMENT ON FUNCTION embedsidecar.note_reload(text, text, text, text, text) IS 'For sidecars: writes into the audit that a plugin was reloaded, or refused to be.';
REVOKE ALL ON FUNCTION embedsidecar.note_reload FROM PUBLIC;
DO $$
DECLARE
    owner name := (SELECT pg_get_userbyid(n.nspowner) FROM pg_namespace AS n WHERE n.nspname = 'embedsidecar');
    role  text;
BEGIN
    FOR role IN SELECT DISTINCT a.grantee::regrole FROM pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS a
                WHERE c.oid = 'embedsidecar.task'::regclass AND a.privilege_type = 'UPDATE' AND a.grantee NOT IN (0, c.relowner) LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION embedsidecar.note_reload TO %s', role);
        EXECUTE format('GRANT UPDATE (texts_embedded, texts_reused, rows_unchanged) ON embedsidecar.pipeline TO %s', role);
        EXECUTE format('GRANT UPDATE (changes_unchanged, changes_joined) ON embedsidecar.lsn_checkpoint TO %s', role);
    END LOOP;
    IF owner <> current_user THEN
        EXECUTE format('ALTER FUNCTION embedsidecar.note_reload OWNER TO %I', owner);
    END IF;
END $$;
---- create above / drop below ----
DROP FUNCTION embedsidecar.note_reload(text, text, text, text, text);
ALTER TABLE embedsidecar.lsn_checkpoint DROP COLUMN changes_joined, DROP COLUMN changes_unchanged;
ALTER TABLE embedsidecar.pipeline DROP COLUMN rows_unchanged, DROP COLUMN texts_reused, DROP COLUMN texts_embedded;
-- A view loses columns by being made anew alone, and so does the one that reads it: with the owner, the comments and the grants that they had.
DO $$
DECLARE
    shown  regclass[] := ARRAY['embedsidecar.workers', 'embedsidecar.health'];
    before text := current_setting('search_path');
    health text;
    again  text[];
    word   text;
BEGIN
    PERFORM set_config('search_path', 'pg_catalog, pg_temp', true); -- so that names in a definition have their schema
    health := pg_get_viewdef('embedsidecar.health'::regclass);
    again := ARRAY(
        SELECT format('COMMENT ON VIEW %s IS %L', v.oid, obj_description(v.oid)) FROM unnest(shown) AS v (oid)
        UNION ALL
        SELECT format('COMMENT ON COLUMN %s.%I IS %L', v.oid, a.attname, col_description(v.oid, a.attnum))
        FROM   unnest(shown) AS v (oid) JOIN pg_attribute AS a ON a.attrelid = v.oid
        WHERE  a.attnum > 0 AND NOT (v.oid = shown[1] AND a.attname IN ('role', 'host', 'speeds'))
        UNION ALL
        SELECT format('GRANT %s ON %s TO %s', a.privilege_type, c.oid::regclass, a.grantee::regrole)
        FROM   pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS a WHERE c.oid = ANY (shown) AND a.grantee NOT IN (0, c.relowner)
        UNION ALL
        SELECT format('ALTER VIEW %s OWNER TO %s', c.oid::regclass, c.relowner::regrole) FROM pg_class AS c
        WHERE  c.oid = ANY (shown) AND pg_get_userbyid(c.relowner) <> current_user);
    DROP VIEW embedsidecar.workers, embedsidecar.health;
    CREATE VIEW embedsidecar.workers AS
    SELECT w.worker_id, w.instance, w.version, w.slot_name, w.stream, w.stream_detail, w.problems, w.started_at, w.last_seen_at,
           w.last_seen_at > now() - interval '5 minutes' AND (w.session_name = '' OR EXISTS (SELECT FROM pg_stat_activity AS a
               WHERE a.datname = current_database() AND a.application_name = w.session_name AND a.pid <> pg_backend_pid())) AS runs,
           (SELECT coalesce(sum(cardinality(l.task_ids)), 0) FROM embedsidecar.lease AS l WHERE l.worker_id = w.worker_id AND l.leased_until >= now()) AS rows_leased,
           w.succeeded_24h + w.failed_24h AS processed_24h, w.succeeded_24h, w.failed_24h, w.last_batch_at
    FROM   embedsidecar.worker AS w;
    EXECUTE 'CREATE VIEW embedsidecar.health AS ' || health;
    FOREACH word IN ARRAY again LOOP
        EXECUTE word;
    END LOOP;
    PERFORM set_config('search_path', before, true);
END $$;
ALTER TABLE embedsidecar.worker DROP COLUMN speeds;
