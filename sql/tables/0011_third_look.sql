-- What a third look at the engine asked for.
COMMENT ON TABLE embedsidecar.schema_version IS 'One row: the version of this schema.';
