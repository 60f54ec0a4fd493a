-- open_scans: the pipelines of @slot whose scans may have something to do; read_scan says what.
-- Rows: one each. Locks: none. Index: none, there is a row for each pipeline.
SELECT s.pipeline_id
FROM   embedsidecar.scan AS s JOIN embedsidecar.pipeline AS p USING (pipeline_id)
       CROSS JOIN embedsidecar.installation AS i
WHERE  s.phase <> 'done' AND p.slot_name = @slot::text::name AND p.enabled AND i.enabled
       AND embedsidecar.is_open(p.active_minutes, p.active_zone, p.open_until);
