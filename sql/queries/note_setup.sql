-- note_setup: write into the audit that pipelines were set up, changed or removed, or a configuration was taken over.
-- Rows: one. Locks: the entry.
SELECT embedsidecar.note_setup(@action::text, @pipeline::text, @arguments::jsonb, @result::text, @said_by::text);
