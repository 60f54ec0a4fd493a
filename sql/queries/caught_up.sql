-- caught_up: whether everything committed before @lsn is decoded, durable and processed, for the pipelines of a slot. A
-- checkpoint of another server, which came with a dump, does not count. A pipeline whose current definition the
-- streamer has not loaded is not caught up: its changes may be missed. Dead letters, cancelled rows, rows scheduled for
-- later and rows of pipelines that cannot work are reported, not waited for. Without a pipeline nothing is caught up: a
-- set-up makes the checkpoint first, then the pipelines.
-- Rows: one. Locks: none. Index: none fits open tasks by LSN; the caller waits until few are left.
WITH known AS MATERIALIZED ( -- rests is asked once for a pipeline, not for each of its tasks
    SELECT p.pipeline_id, p.name, p.generation, embedsidecar.rests(p) IS NOT NULL AS rests
    FROM embedsidecar.pipeline AS p WHERE p.slot_name = @slot
)
SELECT c.lsn >= @lsn::pg_lsn AND c.system_id = (SELECT system_identifier::text FROM pg_control_system()) AS decoded,
       (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t JOIN known AS k USING (pipeline_id)
            WHERE t.state IN ('todo', 'retrying') AND t.first_lsn <= @lsn::pg_lsn
              AND NOT coalesce(t.error_class IS NULL AND t.due_at > now(), false)
              AND NOT k.rests LIMIT 100000) AS o)
       + (SELECT count(*) FROM (SELECT FROM embedsidecar.aside AS a JOIN known AS k USING (pipeline_id)
            WHERE a.first_lsn <= @lsn::pg_lsn AND NOT k.rests LIMIT 100000) AS o) AS open,
       (SELECT count(*) FROM embedsidecar.scan AS s JOIN known AS k USING (pipeline_id)
            WHERE s.phase <> 'done' AND NOT k.rests) AS scans,
       (SELECT count(*) FROM embedsidecar.task AS t JOIN known AS k USING (pipeline_id)
            WHERE t.state = 'failed' AND t.first_lsn <= @lsn::pg_lsn) AS failed,
       (SELECT count(*) FROM embedsidecar.task AS t JOIN known AS k USING (pipeline_id)
            WHERE t.state = 'cancelled' AND t.first_lsn <= @lsn::pg_lsn) AS cancelled,
       (SELECT count(*) FROM embedsidecar.task AS t JOIN known AS k USING (pipeline_id)
            WHERE t.state = 'retrying' AND t.first_lsn <= @lsn::pg_lsn
              AND t.error_class IS NULL AND t.due_at > now()) AS put_off,
       coalesce((SELECT array_agg(k.name ORDER BY k.name) FROM known AS k WHERE k.rests), '{}') AS resting,
       coalesce((SELECT array_agg(k.name ORDER BY k.name) FROM known AS k
            WHERE NOT k.rests AND NOT EXISTS (SELECT FROM embedsidecar.route AS r WHERE r.pipeline_id = k.pipeline_id
                  AND r.generation = k.generation)), '{}') AS unrouted,
       EXISTS (SELECT FROM known) AS any_pipeline
FROM   embedsidecar.lsn_checkpoint AS c
WHERE  c.slot_name = @slot;
