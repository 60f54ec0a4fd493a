-- note_reload: record in the audit that @plugin was reloaded, or that this was refused, and who asked.
-- Rows: one. Locks: the entry.
SELECT embedsidecar.note_reload(@plugin::text, @model::text, @version::text, @result::text, @said_by::text);
