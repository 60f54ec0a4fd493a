-- make_turn: insert the row that take_turn locks, once in the life of a pipeline.
-- Rows: none. Locks: none that others wait for. Index: primary key.
INSERT INTO embedsidecar.turn (pipeline_id)
SELECT p.pipeline_id FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = @pipeline_id
ON CONFLICT DO NOTHING;
