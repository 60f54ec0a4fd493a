-- What is known of the rows of a pipeline outlives it, where a deployment takes it away and its vectors stay in a
-- column of users' rows: a column says nothing of the texts that its vectors are of.

CREATE TABLE embedsidecar.kept_ledger (
    pipeline_id   integer  PRIMARY KEY,
    name          text     NOT NULL,
    table_oid     oid      NOT NULL,
    column_number smallint NOT NULL,
    key_columns   name[]   NOT NULL,
    fingerprint   text     NOT NULL
);
-- A search of errors by their code reads the rows that failed, and no others.
CREATE INDEX task_code_idx ON embedsidecar.task (error_code, task_id) WHERE error_class IS NOT NULL;
