-- Functions that searches call have more parameters now: beside those of before, a call would mean either.
DROP FUNCTION IF EXISTS embedsidecar.search(text, text, integer, interval),
    embedsidecar.neighbours(text, text, integer), embedsidecar.search_statement(text);

ALTER TABLE embedsidecar.spent ADD COLUMN texts_cut bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN embedsidecar.spent.texts_cut IS
    'Texts that were embedded without their ends, since they are longer than the model takes.';
