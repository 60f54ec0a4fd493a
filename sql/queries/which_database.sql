-- which_database: what identifies this database whatever address leads to it: its server, and its name there.
-- Rows: one. Locks: none.
SELECT c.system_identifier::text || '/' || current_database() FROM pg_control_system() AS c;
