-- renew_pipeline: give a pipeline another number, since the keys of its rows are other ones now: what is known of the
-- old keys, their tasks and leases are those of a pipeline that is gone, and go in portions (drop_leftovers), for which
-- no one waits. A streamer or worker with the old number writes nothing any more.
-- Rows: one: the new number. Locks: the pipeline row, its scan, route and turn. Index: primary keys.
WITH scan AS (
    DELETE FROM embedsidecar.scan AS s WHERE s.pipeline_id = @pipeline_id
), route AS (
    DELETE FROM embedsidecar.route AS r WHERE r.pipeline_id = @pipeline_id
), turn AS (
    DELETE FROM embedsidecar.turn AS t WHERE t.pipeline_id = @pipeline_id
)
UPDATE embedsidecar.pipeline AS p SET pipeline_id = DEFAULT WHERE p.pipeline_id = @pipeline_id RETURNING p.pipeline_id;
