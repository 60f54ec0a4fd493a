-- status_configuration: what of the configurations of sidecars that run is not in force, beside single pipelines.
-- Rows: one for each file and setting. Locks: none.
SELECT p.instance, p.subject, p.name, p.state, p.detail, p.hints
FROM   embedsidecar.plan() AS p WHERE p.subject <> 'pipeline';
