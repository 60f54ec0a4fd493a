-- Takes the schema embedsidecar back to version 10, with what is in its tables, as a database that a program of that version set up: whatever
-- later files of sql/tables add goes, functions and views that read it with it.
UPDATE embedsidecar.schema_version SET version = 10;
DROP TABLE embedsidecar.init_lock, embedsidecar.index_lock;
ALTER TABLE embedsidecar.scan DROP COLUMN gap;
