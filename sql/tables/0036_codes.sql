-- A search of errors by their code reads the rows that failed, and no others.
CREATE INDEX task_code_idx ON embedsidecar.task (error_code, task_id) WHERE error_class IS NOT NULL;
