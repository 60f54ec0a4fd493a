-- Takes the schema embedsidecar back to version 10, with what is in its tables, as a database that a program of that version set up: whatever
-- later files of sql/tables add goes, functions and views that read it with it.
DROP TABLE IF EXISTS embedsidecar.spent;
ALTER TABLE embedsidecar.turn DROP COLUMN passed, DROP COLUMN passable, DROP COLUMN top, DROP COLUMN writers, DROP COLUMN live;
ALTER TABLE embedsidecar.audit_log DROP COLUMN told;
DROP TABLE embedsidecar.aside;
ALTER TABLE embedsidecar.turn RESET (fillfactor);
UPDATE embedsidecar.schema_version SET version = 10;
DROP TABLE IF EXISTS embedsidecar.init_lock, embedsidecar.index_lock;
ALTER TABLE embedsidecar.scan DROP COLUMN IF EXISTS gap;
ALTER TABLE embedsidecar.scan DROP partitions, DROP lost;
