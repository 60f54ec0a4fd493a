-- What a pipeline says of the attempts of its rows, and the labels that it is found by.

ALTER TABLE embedsidecar.pipeline
    ADD COLUMN max_attempts smallint CHECK (max_attempts BETWEEN 1 AND 1000),
    ADD COLUMN IF NOT EXISTS labels jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(labels) = 'object');
COMMENT ON COLUMN embedsidecar.pipeline.max_attempts IS
    'Failures of a row after which it is a dead letter. NULL: as the sidecar is configured for all pipelines.';
COMMENT ON COLUMN embedsidecar.pipeline.labels IS 'Names and values that users have given it, to find it by.';
