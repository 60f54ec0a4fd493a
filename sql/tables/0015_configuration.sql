-- What sidecars are configured with, beside what is set up.

CREATE TABLE embedsidecar.configured (
    configured_id bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    slot_name     name        NOT NULL,
    instance      text        NOT NULL,
    session_name  text        NOT NULL,
    file          text        NOT NULL DEFAULT '',
    loaded_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    digests       jsonb       NOT NULL DEFAULT '{}',
    problems      jsonb       NOT NULL DEFAULT '{}',
    settings      jsonb       NOT NULL DEFAULT '[]',
    refused       text        NOT NULL DEFAULT '',
    refused_at    timestamptz,
    hints         text[]      NOT NULL DEFAULT '{}',
    restart       text[]      NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE embedsidecar.configured IS
    'The configuration of each sidecar. The row of one that ended stays for ten minutes, or until another of its name '
    'comes: the others tell by it what was set up by a sidecar and what by hand.';
COMMENT ON COLUMN embedsidecar.configured.session_name IS
    'application_name of its sessions: without one it has ended without a word.';
COMMENT ON COLUMN embedsidecar.configured.file IS 'The file that it was read from; empty: there is none.';
COMMENT ON COLUMN embedsidecar.configured.loaded_at IS 'When it was taken over.';
COMMENT ON COLUMN embedsidecar.configured.digests IS
    'The definitions of its pipelines by their names, as the column definitions of pipeline has them.';
COMMENT ON COLUMN embedsidecar.configured.problems IS
    'Why pipelines do not work as they are configured, by their names: reason and hints.';
COMMENT ON COLUMN embedsidecar.configured.settings IS
    'What is set, other than by default: setting, value (without secrets) and origin.';
COMMENT ON COLUMN embedsidecar.configured.refused IS
    'Why a later configuration is not taken over; empty: there is none.';
COMMENT ON COLUMN embedsidecar.configured.restart IS
    'Settings that were changed since and that take effect at the next start.';

ALTER TABLE embedsidecar.pipeline ADD COLUMN origin text NOT NULL DEFAULT '';
COMMENT ON COLUMN embedsidecar.pipeline.origin IS 'The file that configures it; empty: none is known.';
