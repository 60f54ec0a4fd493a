CREATE OR REPLACE VIEW embedsidecar.health AS
SELECT 'slot' AS "check", s.slot_name::text AS subject, s.status, s.reason AS detail,
    nullif(replace(array_to_string(s.hints, '; '), ';; ', '; '), '') AS hint, s.state
FROM   embedsidecar.slot_states() AS s
UNION ALL
SELECT 'sidecar', w.instance, CASE WHEN w.stream = 'stuck' THEN 'error'
    ELSE 'ok' END, concat_ws(': ', w.stream, nullif(w.stream_detail, '')), NULL, w.stream
FROM   embedsidecar.worker AS w WHERE embedsidecar.runs(w)
UNION ALL
SELECT 'configuration', c.instance, CASE WHEN c.refused <> '' OR c.restart <> '{}' THEN 'warn' ELSE 'ok' END,
    CASE WHEN c.refused <> '' THEN 'a later configuration is not taken over: ' || c.refused
        WHEN c.restart <> '{}' THEN 'takes effect at the next start: ' || array_to_string(c.restart, ', ')
        ELSE concat_ws(': ', 'in force', nullif(c.file, '')) END,
    nullif(replace(array_to_string(c.hints, '; '), ';; ', '; '), ''),
    CASE WHEN c.refused <> '' THEN 'refused' WHEN c.restart <> '{}' THEN 'needs_restart' ELSE 'in_force' END
FROM   embedsidecar.configured AS c WHERE embedsidecar.lives(c)
UNION ALL
SELECT 'pipeline', s.pipeline, s.severity, s.reason,
    nullif(replace(array_to_string(s.hints, '; '), ';; ', '; '), ''), s.state
FROM   embedsidecar.states() AS s;
COMMENT ON VIEW embedsidecar.health IS
    'Checks of slots, sidecars, configurations and pipelines, with what to do about problems. Slots and pipelines are '
    'as in embedsidecar.slots and embedsidecar.status.';
COMMENT ON COLUMN embedsidecar.health."check" IS 'What was checked: slot, sidecar, configuration or pipeline.';
COMMENT ON COLUMN embedsidecar.health.subject IS 'Its name.';
COMMENT ON COLUMN embedsidecar.health.status IS 'ok, warn or error.';
COMMENT ON COLUMN embedsidecar.health.detail IS 'A sentence.';
COMMENT ON COLUMN embedsidecar.health.hint IS 'What to do about it; NULL: nothing.';
COMMENT ON COLUMN embedsidecar.health.state IS 'Its state.';
