-- Errors are grouped by this index alone: it holds dead letters only, so that other tasks write nothing to it.
DROP INDEX IF EXISTS embedsidecar.task_failed_idx;
CREATE INDEX task_failed_idx ON embedsidecar.task (pipeline_id, error_class, error_code, committed_at, row_key)
    WHERE state = 'failed';
