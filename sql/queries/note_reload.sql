-- note_reload: write into the audit that @plugin was reloaded, or refused to be, for whom.
-- Rows: one. Locks: the entry.
SELECT embedsidecar.note_reload(@plugin::text, @model::text, @version::text, @result::text, @said_by::text);
