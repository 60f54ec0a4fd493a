-- What counts of a text.

ALTER TABLE embedsidecar.pipeline ADD COLUMN ignore_expression text;
COMMENT ON COLUMN embedsidecar.pipeline.ignore_expression IS
    'SQL over the text: an edit that does not change its value needs no new vector. NULL: every edit does.';
ALTER TABLE embedsidecar.ledger ADD COLUMN norm_hash bytea;
COMMENT ON COLUMN embedsidecar.ledger.norm_hash IS
    'SHA-256 of text_hash and the hash of ignore_expression and its value for that text. NULL: there is no such '
    'expression, or it gave NULL.';
ALTER TABLE embedsidecar.ledger ADD COLUMN ignored boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN embedsidecar.ledger.ignored IS
    'The text was edited since its vector was made, in nothing that ignore_expression counts.';
