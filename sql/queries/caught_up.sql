-- caught_up: whether everything committed before @lsn is decoded, durable and processed, for the pipelines of a slot. A
-- checkpoint of another server, which came with a dump, does not count. A pipeline whose current definition the
-- streamer has not loaded is not caught up: its changes may be missed. Dead letters, cancelled rows, rows scheduled for
-- later and rows of pipelines that cannot work are reported, not waited for. Without a pipeline nothing is caught up: a
-- set-up makes the checkpoint first, then the pipelines.
-- Rows: one. Locks: none. Index: none fits open tasks by LSN; the caller waits until few are left.
SELECT c.lsn >= @lsn::pg_lsn AND c.system_id = (SELECT system_identifier::text FROM pg_control_system()) AS decoded,
       (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t JOIN embedsidecar.pipeline AS p USING (pipeline_id)
            WHERE p.slot_name = c.slot_name AND t.state IN ('todo', 'retrying') AND t.first_lsn <= @lsn::pg_lsn
              AND NOT coalesce(t.error_class IS NULL AND t.due_at > now(), false)
              AND embedsidecar.rests(p) IS NULL LIMIT 100000) AS o)
       + (SELECT count(*) FROM (SELECT FROM embedsidecar.aside AS a JOIN embedsidecar.pipeline AS p USING (pipeline_id)
            WHERE p.slot_name = c.slot_name AND a.first_lsn <= @lsn::pg_lsn
              AND embedsidecar.rests(p) IS NULL LIMIT 100000) AS o) AS open,
       (SELECT count(*) FROM embedsidecar.scan AS s JOIN embedsidecar.pipeline AS p USING (pipeline_id)
            WHERE p.slot_name = c.slot_name AND s.phase <> 'done' AND embedsidecar.rests(p) IS NULL) AS scans,
       (SELECT count(*) FROM embedsidecar.task AS t JOIN embedsidecar.pipeline AS p USING (pipeline_id)
            WHERE p.slot_name = c.slot_name AND t.state = 'failed' AND t.first_lsn <= @lsn::pg_lsn) AS failed,
       (SELECT count(*) FROM embedsidecar.task AS t JOIN embedsidecar.pipeline AS p USING (pipeline_id)
            WHERE p.slot_name = c.slot_name AND t.state = 'cancelled' AND t.first_lsn <= @lsn::pg_lsn) AS cancelled,
       (SELECT count(*) FROM embedsidecar.task AS t JOIN embedsidecar.pipeline AS p USING (pipeline_id)
            WHERE p.slot_name = c.slot_name AND t.state = 'retrying' AND t.first_lsn <= @lsn::pg_lsn
              AND t.error_class IS NULL AND t.due_at > now()) AS put_off,
       coalesce((SELECT array_agg(p.name ORDER BY p.name) FROM embedsidecar.pipeline AS p
            WHERE p.slot_name = c.slot_name AND embedsidecar.rests(p) IS NOT NULL), '{}') AS resting,
       coalesce((SELECT array_agg(p.name ORDER BY p.name) FROM embedsidecar.pipeline AS p
            WHERE p.slot_name = c.slot_name AND embedsidecar.rests(p) IS NULL
              AND NOT EXISTS (SELECT FROM embedsidecar.route AS r WHERE r.pipeline_id = p.pipeline_id
                  AND r.generation = p.generation)), '{}') AS unrouted,
       EXISTS (SELECT FROM embedsidecar.pipeline AS p WHERE p.slot_name = c.slot_name) AS any_pipeline
FROM   embedsidecar.lsn_checkpoint AS c
WHERE  c.slot_name = @slot;
