-- It tells of rows that are put off, too.
DROP FUNCTION IF EXISTS embedsidecar.drain_state(integer[], pg_lsn);
