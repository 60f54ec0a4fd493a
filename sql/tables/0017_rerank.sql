-- Functions that ask the sidecar have more parameters now: beside those of before, a call would mean either.
DROP FUNCTION IF EXISTS embedsidecar.search(text, text, integer, interval, jsonb, integer, double precision, boolean),
    embedsidecar.put(bytea, interval), embedsidecar.begin_ask(text, text, interval),
    embedsidecar.asked(text, text, timestamptz, interval);
DROP PROCEDURE IF EXISTS embedsidecar.ask(text, text, interval);

COMMENT ON TABLE embedsidecar.answer IS
    'Vectors of texts that someone has asked for, and scores of texts, for a minute or two. No text is here. A crash '
    'of the server empties it.';
COMMENT ON COLUMN embedsidecar.answer.question IS 'SHA-256 of pipeline, role and text, and of the texts to be scored.';
COMMENT ON COLUMN embedsidecar.answer.vector IS
    'As the pipeline''s model made it, as pgvector reads it; scores are an array of real.';
