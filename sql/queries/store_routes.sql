-- store_routes: record which definition of each pipeline the streamer matches changes with from now on. Pipelines
-- that it does not match have no row afterwards: they are being removed.
-- Parameters: the slot and the streamer's epoch; arrays of one length, one element per matched pipeline; skip: whether
-- pipelines whose scan cannot be requested now, because its row is locked, are left for later. These have no row
-- afterwards either. Call it only in a transaction that has proven the epoch (take_epoch, save_checkpoint).
-- Rows: one: the pipelines whose definition was not stored before, and how many of these are left for later.
-- Changes of the others' tables until now were matched with another definition, or with none, so they need a scan.
-- Locks: the rows of route that change; to skip, the scan rows of the pipelines returned, SKIP LOCKED. Index: primary
-- key.
WITH given AS (
    SELECT i.pipeline_id, i.generation, i.definition
    FROM   unnest(@pipeline_ids::integer[], @generations::integer[], @definitions::bytea[]) AS i (pipeline_id,
        generation, definition)
           JOIN embedsidecar.pipeline AS p USING (pipeline_id)
), fresh AS MATERIALIZED (
    SELECT g.pipeline_id FROM given AS g
    WHERE  NOT EXISTS (SELECT FROM embedsidecar.route AS r
                       WHERE r.pipeline_id = g.pipeline_id
                           AND (r.generation, r.definition) = (g.generation, g.definition))
), free AS MATERIALIZED (
    SELECT s.pipeline_id FROM embedsidecar.scan AS s
    WHERE  s.pipeline_id IN (SELECT f.pipeline_id FROM fresh AS f)
    ORDER  BY s.pipeline_id FOR UPDATE SKIP LOCKED
), held AS MATERIALIZED (
    SELECT s.pipeline_id FROM embedsidecar.scan AS s
    WHERE  @skip::boolean AND s.pipeline_id IN (SELECT f.pipeline_id FROM fresh AS f)
           AND s.pipeline_id NOT IN (SELECT f.pipeline_id FROM free AS f)
), mine AS (
    SELECT g.pipeline_id, g.generation, g.definition FROM given AS g
    WHERE  g.pipeline_id NOT IN (SELECT h.pipeline_id FROM held AS h)
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
SELECT coalesce(array_agg(f.pipeline_id ORDER BY f.pipeline_id) FILTER (WHERE h.pipeline_id IS NULL), '{}'),
       count(h.pipeline_id)
FROM   fresh AS f LEFT JOIN held AS h USING (pipeline_id);
