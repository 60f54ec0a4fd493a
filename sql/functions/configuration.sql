-- The configurations of sidecars, and what they wait for.

CREATE OR REPLACE FUNCTION embedsidecar.plan()
RETURNS TABLE (instance text, subject text, name text, state text, detail text, hints text[])
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT c.instance, 'file', c.file, 'refused', c.refused, c.hints
FROM   embedsidecar.configured AS c WHERE c.refused <> '' AND embedsidecar.lives(c)
UNION ALL
SELECT c.instance, 'setting', s.name, 'needs_restart', 'it was changed, and takes effect at the next start',
    '{}'::text[]
FROM   embedsidecar.configured AS c CROSS JOIN LATERAL unnest(c.restart) AS s (name) WHERE embedsidecar.lives(c)
UNION ALL
SELECT c.instance, 'pipeline', o.key,
    CASE WHEN EXISTS (SELECT FROM embedsidecar.pipeline AS p WHERE p.name = o.key) THEN 'configured_otherwise'
        ELSE 'not_set_up' END, o.value ->> 'reason', ARRAY(SELECT jsonb_array_elements_text(o.value -> 'hints'))
FROM   embedsidecar.configured AS c CROSS JOIN LATERAL jsonb_each(c.problems) AS o WHERE embedsidecar.lives(c)
UNION ALL
SELECT '', 'request', r.pipeline, 'waiting', format('%s, request %s: %s', r.action, r.request_id,
    embedsidecar.waits_for(r)), '{}'::text[]
FROM   embedsidecar.request AS r WHERE r.state = 'waiting'
ORDER BY 1, 2, 3
$$;
COMMENT ON FUNCTION embedsidecar.plan IS
    'The differences between the configurations of running sidecars and what is set up, and what happens next; no '
    'rows: all of it is in force. embedsidecar plan shows what a changed file would do.';

-- A set-up is not one statement, so the program records it.
CREATE OR REPLACE FUNCTION embedsidecar.note_setup(action text, pipeline text, arguments jsonb, result text,
    said_by text)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    entry embedsidecar.audit_log;
BEGIN
    IF note_setup.action IS NULL OR note_setup.action NOT IN ('init', 'apply', 'uninstall', 'reload') THEN
        RAISE EXCEPTION 'note_setup: action: expected init, apply, uninstall or reload, not %',
            coalesce(note_setup.action, 'NULL') USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF note_setup.result IS NULL OR note_setup.result NOT IN ('done', 'refused') THEN
        RAISE EXCEPTION 'note_setup: result: expected done or refused, not %', coalesce(note_setup.result, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    entry := embedsidecar.begin_action(note_setup.action, NULL, coalesce(note_setup.arguments, '{}'),
        note_setup.said_by, false);
    UPDATE embedsidecar.audit_log AS a SET pipeline = note_setup.pipeline WHERE a.audit_id = entry.audit_id;
    PERFORM embedsidecar.end_action(entry.audit_id, note_setup.result,
        coalesce(jsonb_array_length(note_setup.arguments -> 'steps'), 1));
    RETURN entry.audit_id;
END $$;
COMMENT ON FUNCTION embedsidecar.note_setup IS
    'For this program: records in the audit that it has set up, changed or removed pipelines, or applied a '
    'configuration, or that this was refused.';

CREATE OR REPLACE FUNCTION embedsidecar.keeps_ledger(pipeline_id integer) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT EXISTS (SELECT FROM embedsidecar.kept_ledger AS k JOIN pg_attribute AS a ON a.attrelid = k.table_oid
    AND a.attnum = k.column_number AND NOT a.attisdropped WHERE k.pipeline_id = keeps_ledger.pipeline_id)
$$;
COMMENT ON FUNCTION embedsidecar.keeps_ledger IS 'Whether the ledger of a removed pipeline is kept.';

CREATE OR REPLACE FUNCTION embedsidecar.keep_ledger(pipeline text) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
DELETE FROM embedsidecar.kept_ledger AS k WHERE NOT embedsidecar.keeps_ledger(k.pipeline_id);
INSERT INTO embedsidecar.kept_ledger (pipeline_id, name, table_oid, column_number, key_columns, fingerprint)
SELECT p.pipeline_id, p.name, p.table_oid, (p.column_numbers ->> p.destination_column::text)::smallint, p.key_columns,
    p.fingerprint
FROM   embedsidecar.pipeline AS p
WHERE  p.name = keep_ledger.pipeline AND p.column_numbers ? p.destination_column::text
$$;
COMMENT ON FUNCTION embedsidecar.keep_ledger IS
    'For the removal of a pipeline into a column: keeps what is known of its rows.';
