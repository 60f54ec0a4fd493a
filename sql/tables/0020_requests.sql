-- Pipelines that are declared in the database, and requests for them; attempts of tasks have bounds.

CREATE TABLE embedsidecar.request (
    request_id   bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    slot_name    name        NOT NULL,
    action       text        NOT NULL CHECK (action IN ('create', 'change', 'drop')),
    pipeline     text        NOT NULL,
    definition   jsonb       NOT NULL DEFAULT '{}',
    role_name    name        NOT NULL,
    role_oid     oid         NOT NULL,
    said_by      text        NOT NULL DEFAULT '',
    audit_id     bigint      NOT NULL,
    state        text        NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'done', 'refused')),
    taken_by     text        NOT NULL DEFAULT '',
    tries        integer     NOT NULL DEFAULT 0,
    reason       text        NOT NULL DEFAULT '',
    hints        text[]      NOT NULL DEFAULT '{}',
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at  timestamptz
);
CREATE INDEX request_waiting_idx ON embedsidecar.request (slot_name, request_id) WHERE state = 'waiting';
COMMENT ON TABLE embedsidecar.request IS
    'Pipelines to create, change or drop: each is carried out by one sidecar, in the order of their numbers.';
COMMENT ON COLUMN embedsidecar.request.definition IS
    'Of create the whole definition, as in the file; of change the keys that change: null takes one away.';
COMMENT ON COLUMN embedsidecar.request.role_name IS 'Who requested it; his rights count when it is carried out.';
COMMENT ON COLUMN embedsidecar.request.role_oid IS 'His number: another role of his name has other rights.';
COMMENT ON COLUMN embedsidecar.request.taken_by IS
    'application_name of who carries it out. Without a session of that name another begins again.';
COMMENT ON COLUMN embedsidecar.request.tries IS 'How often it was begun.';

CREATE TABLE embedsidecar.declared (
    name       text   PRIMARY KEY,
    slot_name  name   NOT NULL,
    definition jsonb  NOT NULL,
    request_id bigint NOT NULL
);
COMMENT ON TABLE embedsidecar.declared IS
    'Pipelines that are configured here instead of in a file: sidecars have them beside those of their files.';
COMMENT ON COLUMN embedsidecar.declared.request_id IS 'The request that it was last changed by.';

ALTER TABLE embedsidecar.configured ADD COLUMN takes_requests boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN embedsidecar.configured.takes_requests IS 'It carries out requests for pipelines.';

-- The most that retry.max_attempts may be.
ALTER TABLE embedsidecar.task ADD CONSTRAINT task_attempt_check CHECK (attempt BETWEEN 0 AND 1000);

-- Functions that have another form now.
DROP FUNCTION IF EXISTS embedsidecar.requeue(text, text[], integer, boolean, text, bigint);
DROP FUNCTION IF EXISTS embedsidecar.add_looks(integer, text[]);
DROP FUNCTION IF EXISTS embedsidecar.search_statement(text, jsonb);
