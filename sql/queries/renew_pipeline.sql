-- renew_pipeline: give a pipeline another number because the keys of its rows changed. The ledger of the old keys,
-- their tasks and leases then belong to a removed pipeline and are deleted in portions (drop_leftovers). A streamer or
-- worker with the old number writes nothing any more.
-- Rows: one: the new number. Locks: the pipeline row, its scan, route and turn. Index: primary keys.
WITH scan AS (
    DELETE FROM embedsidecar.scan AS s WHERE s.pipeline_id = @pipeline_id
), route AS (
    DELETE FROM embedsidecar.route AS r WHERE r.pipeline_id = @pipeline_id
), turn AS (
    DELETE FROM embedsidecar.turn AS t WHERE t.pipeline_id = @pipeline_id
)
UPDATE embedsidecar.pipeline AS p SET pipeline_id = DEFAULT WHERE p.pipeline_id = @pipeline_id RETURNING p.pipeline_id;
