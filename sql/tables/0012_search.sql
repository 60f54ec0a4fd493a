-- Functions that searches call have more parameters now: beside those of before, a call would mean either.
DROP FUNCTION IF EXISTS embedsidecar.search(text, text, integer, interval), embedsidecar.neighbours(text, text, integer),
    embedsidecar.search_statement(text);
