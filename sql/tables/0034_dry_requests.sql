-- Requests of which a sidecar only tells what they would do. They have states of their own: whoever carries requests
-- out, or asks what is configured, finds none of them.

ALTER TABLE embedsidecar.request ADD COLUMN dry_run boolean NOT NULL DEFAULT false, ADD COLUMN plan jsonb,
    ALTER COLUMN audit_id DROP NOT NULL, DROP CONSTRAINT request_state_check,
    ADD CONSTRAINT request_state_check CHECK (CASE WHEN dry_run THEN state IN ('to_plan', 'planned', 'refused')
        ELSE state IN ('waiting', 'done', 'refused') END);
COMMENT ON COLUMN embedsidecar.request.dry_run IS 'Nothing is done: plan tells what would be.';
COMMENT ON COLUMN embedsidecar.request.plan IS
    'Of a dry run what it would change, as embedsidecar plan tells it of a file.';
COMMENT ON COLUMN embedsidecar.request.audit_id IS 'Its entry in the audit; a dry run has none.';

DROP INDEX embedsidecar.request_waiting_idx;
CREATE INDEX request_waiting_idx ON embedsidecar.request (slot_name, request_id)
    WHERE state IN ('waiting', 'to_plan');

-- Functions that have another form now. An older program, which would carry out a dry run, gets no request at all.
DROP FUNCTION IF EXISTS embedsidecar.request_pipeline(text, text, jsonb, name, text);
DROP FUNCTION IF EXISTS embedsidecar.create_pipeline(jsonb, name, text);
DROP FUNCTION IF EXISTS embedsidecar.change_pipeline(text, jsonb, text);
DROP FUNCTION IF EXISTS embedsidecar.drop_pipeline(text, text);
DROP FUNCTION IF EXISTS embedsidecar.take_request(name);
DROP FUNCTION IF EXISTS embedsidecar.finish_request(bigint, text, text[]);
