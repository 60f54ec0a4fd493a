-- note_rest: store that a pipeline rests and why, or (@reason NULL) that it does not.
-- Rows: none. Locks: the pipeline row, if it changes. Index: primary key.
UPDATE embedsidecar.pipeline AS p
SET    resting_since = CASE WHEN @reason::text IS NOT NULL THEN coalesce(p.resting_since, now()) END,
       rest_reason   = coalesce('the last ' || @texts::integer || ' texts all failed: ' || @reason::text, '')
WHERE  p.pipeline_id = @pipeline_id AND (@reason::text IS NOT NULL OR p.resting_since IS NOT NULL);
