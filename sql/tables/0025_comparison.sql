-- What the comparison of a next generation with the one that serves has given.

ALTER TABLE embedsidecar.pipeline ADD COLUMN compared jsonb;
COMMENT ON COLUMN embedsidecar.pipeline.compared IS
    'Of a next generation that serves by itself when its answers are like enough: overlap, least (what it must be), '
    'questions, and at (when it was compared). NULL: it was not.';

-- It has more columns now.
DROP VIEW IF EXISTS embedsidecar.generations;
DROP FUNCTION IF EXISTS embedsidecar.generation_states(text);
