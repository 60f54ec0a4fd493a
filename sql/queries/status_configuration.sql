-- status_configuration: what is not in force of the configurations of running sidecars, apart from single pipelines.
-- Rows: one for each file and setting. Locks: none.
SELECT p.instance, p.subject, p.name, p.state, p.detail, p.hints
FROM   embedsidecar.plan() AS p WHERE p.subject <> 'pipeline';
