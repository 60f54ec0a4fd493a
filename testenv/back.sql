-- Takes the schema embedsidecar back to version 36, with what is in its tables, as a database that a program of that
-- version set up: whatever later files of sql/tables add goes, functions and views that read it with it.
UPDATE embedsidecar.schema_version SET version = 36;
DROP TABLE embedsidecar.kept_ledger;
DROP INDEX embedsidecar.task_code_idx;
