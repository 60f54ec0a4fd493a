-- acknowledge_routes: the streamer says which definition of each pipeline it matches changes with from now on. What it
-- does not match at all has no row afterwards: a pipeline that is being removed is no one's any more.
-- Parameters: the slot and the streamer's epoch; arrays of one length, one element per pipeline it matches changes
-- with. Call it only in a transaction that has proven the epoch (take_epoch, save_checkpoint).
-- Rows: one: the pipelines whose definition no one had acknowledged. What happened to their tables until now was judged
-- by another one, or by none: they need a scan. Locks: the rows of route that change. Index: primary key.
WITH mine AS (
    SELECT i.pipeline_id, i.generation, i.definition
    FROM   unnest(@pipeline_ids::integer[], @generations::integer[], @definitions::bytea[]) AS i (pipeline_id,
        generation, definition)
           JOIN embedsidecar.pipeline AS p USING (pipeline_id)
), gone AS (
    DELETE FROM embedsidecar.route AS r USING embedsidecar.pipeline AS p
    WHERE  p.pipeline_id = r.pipeline_id AND p.slot_name = @slot AND r.pipeline_id NOT IN (SELECT pipeline_id FROM mine)
), written AS (
    INSERT INTO embedsidecar.route AS r (pipeline_id, generation, definition, epoch)
    SELECT pipeline_id, generation, definition, @epoch FROM mine ORDER BY pipeline_id
    ON CONFLICT (pipeline_id) DO UPDATE SET generation = excluded.generation, definition = excluded.definition,
        epoch = excluded.epoch, routed_at = now()
    WHERE (r.generation, r.definition, r.epoch) IS DISTINCT
        FROM (excluded.generation, excluded.definition, excluded.epoch)
)
SELECT coalesce(array_agg(m.pipeline_id ORDER BY m.pipeline_id), '{}')
FROM   mine AS m
WHERE  NOT EXISTS (SELECT FROM embedsidecar.route AS r
                   WHERE r.pipeline_id = m.pipeline_id AND r.generation = m.generation AND r.definition = m.definition);
