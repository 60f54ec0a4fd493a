-- Times of tasks, how long history is kept, and jobs in the audit.

ALTER TABLE embedsidecar.lease ADD COLUMN IF NOT EXISTS started_at timestamptz NOT NULL DEFAULT now();
COMMENT ON COLUMN embedsidecar.lease.started_at IS 'When it was taken.';
ALTER TABLE embedsidecar.task ADD COLUMN IF NOT EXISTS started_at timestamptz,
    ADD COLUMN IF NOT EXISTS finished_at timestamptz;
COMMENT ON COLUMN embedsidecar.task.started_at IS
    'When the last try began that left it in the queue; NULL: there was none. Written when the try ends.';
COMMENT ON COLUMN embedsidecar.task.finished_at IS 'When that try ended.';
COMMENT ON COLUMN embedsidecar.task.due_at IS
    'When it is due, or was, if it waits or has waited for a time; NULL: it was due at once.';
ALTER TABLE embedsidecar.history ADD COLUMN created_at timestamptz, ADD COLUMN scheduled_at timestamptz;
COMMENT ON COLUMN embedsidecar.history.created_at IS 'When the task was made; NULL: there was none.';
COMMENT ON COLUMN embedsidecar.history.scheduled_at IS 'When it was due, if it waited for a time.';
COMMENT ON TABLE embedsidecar.history IS
    'What happened to each row recently: one entry per finished look. prune_history says how much is kept.';

CREATE TABLE embedsidecar.history_turn (
    only_row boolean       PRIMARY KEY DEFAULT true CHECK (only_row),
    bucket   smallint      NOT NULL DEFAULT 0,
    began_at timestamptz   NOT NULL DEFAULT now(),
    ended_at timestamptz[] NOT NULL DEFAULT array_fill(now(), ARRAY[8])
);
INSERT INTO embedsidecar.history_turn DEFAULT VALUES;
COMMENT ON TABLE embedsidecar.history_turn IS
    'One row: which of the eight partitions of history is written. They are used in turn.';
COMMENT ON COLUMN embedsidecar.history_turn.began_at IS 'Since when it is this one.';
COMMENT ON COLUMN embedsidecar.history_turn.ended_at IS
    'The time of the newest entry of partitions 0 to 7, or later.';

ALTER TABLE embedsidecar.audit_log ADD COLUMN open boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN embedsidecar.audit_log.open IS 'A job that is under way: result says at which stage.';
CREATE INDEX audit_open_idx ON embedsidecar.audit_log (audit_id) WHERE open;
ALTER TABLE embedsidecar.scan ADD COLUMN asked bigint;
COMMENT ON COLUMN embedsidecar.scan.asked IS 'The action in the audit that asked for the next one; NULL: none did.';

-- Columns of views that have other names now. The views stay, with what others have granted and made of them.
DO $$
DECLARE
    c record;
BEGIN
    FOR c IN SELECT * FROM (VALUES ('tasks', 'enqueued_at', 'created_at'), ('tasks', 'next_try_at', 'scheduled_at'),
                 ('dead_letters', 'enqueued_at', 'created_at'), ('lanes', 'average_seconds', 'average_ms'))
                 AS v (view_name, old, new)
             JOIN pg_attribute AS a ON a.attrelid = to_regclass('embedsidecar.' || v.view_name) AND a.attname = v.old
    LOOP
        EXECUTE format('ALTER VIEW embedsidecar.%I RENAME COLUMN %I TO %I', c.view_name, c.old, c.new);
    END LOOP;
END $$;
-- Functions that have another form now.
DROP FUNCTION IF EXISTS embedsidecar.ask_for_scan(integer, text);
