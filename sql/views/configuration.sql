CREATE OR REPLACE VIEW embedsidecar.configuration AS
SELECT c.instance, 'file' AS subject, c.file AS name, '' AS value, '' AS origin,
    CASE WHEN c.refused = '' THEN 'in_force' ELSE 'refused' END AS state, nullif(c.refused, '') AS reason, c.hints,
    coalesce(c.refused_at, c.loaded_at) AS since, c.slot_name
FROM   embedsidecar.configured AS c WHERE embedsidecar.lives(c)
UNION ALL
SELECT c.instance, 'pipeline', d.key, d.value, coalesce(p.origin, ''),
    CASE WHEN o.problem IS NULL THEN 'in_force' WHEN p.name IS NULL THEN 'not_set_up' ELSE 'configured_otherwise' END,
    o.problem ->> 'reason', coalesce(ARRAY(SELECT jsonb_array_elements_text(o.problem -> 'hints')), '{}'), c.loaded_at,
    c.slot_name
FROM   embedsidecar.configured AS c CROSS JOIN LATERAL jsonb_each_text(c.digests) AS d
       CROSS JOIN LATERAL (SELECT c.problems -> d.key) AS o (problem)
       LEFT JOIN embedsidecar.pipeline AS p ON p.name = d.key
WHERE  embedsidecar.lives(c)
UNION ALL
SELECT c.instance, 'setting', s ->> 'setting', s ->> 'value', s ->> 'origin',
    CASE WHEN s ->> 'setting' = ANY (c.restart) THEN 'needs_restart' ELSE 'in_force' END,
    CASE WHEN s ->> 'setting' = ANY (c.restart) THEN 'it was changed, and takes effect at the next start' END, '{}',
    c.loaded_at, c.slot_name
FROM   embedsidecar.configured AS c CROSS JOIN LATERAL jsonb_array_elements(c.settings) AS s
WHERE  embedsidecar.lives(c);
COMMENT ON VIEW embedsidecar.configuration IS
    'The configuration of each running sidecar: its file, its pipelines, and each setting that differs from its '
    'default; what of it is in force, and why the rest is not.';
COMMENT ON COLUMN embedsidecar.configuration.instance IS 'The sidecar.';
COMMENT ON COLUMN embedsidecar.configuration.subject IS 'file, pipeline or setting.';
COMMENT ON COLUMN embedsidecar.configuration.name IS 'The path of the file, the name of the pipeline, or the setting.';
COMMENT ON COLUMN embedsidecar.configuration.value IS
    'The value of a setting, without secrets; the digest of a pipeline''s definition.';
COMMENT ON COLUMN embedsidecar.configuration.origin IS
    'Where a setting was set: flag, variable, or place in the file; the file that a pipeline was set up from.';
COMMENT ON COLUMN embedsidecar.configuration.state IS
    'in_force; refused (the file has mistakes, so the previous configuration stays in force); not_set_up or '
    'configured_otherwise (a pipeline); needs_restart (a setting).';
COMMENT ON COLUMN embedsidecar.configuration.reason IS 'Why it is not in force.';
COMMENT ON COLUMN embedsidecar.configuration.hints IS 'What to do about it.';
COMMENT ON COLUMN embedsidecar.configuration.since IS 'When it took effect or was refused.';
COMMENT ON COLUMN embedsidecar.configuration.slot_name IS 'The slot of the sidecar.';
