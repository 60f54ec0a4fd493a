-- take_turn: let one worker at a time lease tasks of a pipeline, until its transaction ends: two at the same moment
-- would choose the same tasks. A row lock writes no new version of the row, even while old ones are kept alive.
-- Rows: none or one. Locks: the row of the pipeline. Index: primary key.
SELECT FROM embedsidecar.turn AS t WHERE t.pipeline_id = @pipeline_id FOR UPDATE;
