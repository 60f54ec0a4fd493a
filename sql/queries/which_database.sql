-- which_database: what tells this database from all others, whatever address leads to it: of its server, and its name
-- there.
-- Rows: one. Locks: none.
SELECT c.system_identifier::text || '/' || current_database() FROM pg_control_system() AS c;
