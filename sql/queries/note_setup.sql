-- note_setup: record in the audit that pipelines were set up, changed or removed, or that a configuration was applied.
-- Rows: one. Locks: the entry.
SELECT embedsidecar.note_setup(@action::text, @pipeline::text, @arguments::jsonb, @result::text, @said_by::text);
