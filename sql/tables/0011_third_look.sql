-- What a third look at the engine asked for.

-- Locked for as long as one init sets up, or one sidecar builds an index: they hold no rows.
CREATE TABLE embedsidecar.init_lock ();
CREATE TABLE embedsidecar.index_lock ();
COMMENT ON TABLE embedsidecar.init_lock IS 'Locked while an init runs, so that another does not.';
COMMENT ON TABLE embedsidecar.index_lock IS 'Locked while a sidecar builds an index, so that another does not.';

ALTER TABLE embedsidecar.scan ADD COLUMN gap boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN embedsidecar.scan.gap IS 'Changes may have been missed since the last comparison ended.';

-- A row of its own: that of the pipeline would be another version each minute, and another version asks every sidecar
-- to load its pipelines.
CREATE TABLE embedsidecar.spent (
    pipeline_id     integer PRIMARY KEY REFERENCES embedsidecar.pipeline ON UPDATE CASCADE ON DELETE CASCADE,
    tokens_embedded bigint  NOT NULL DEFAULT 0,
    texts_embedded  bigint  NOT NULL DEFAULT 0,
    texts_reused    bigint  NOT NULL DEFAULT 0,
    rows_unchanged  bigint  NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
COMMENT ON TABLE embedsidecar.spent IS
    'What pipelines have cost, beside what the columns of the same names in pipeline say, which older programs write; '
    'written once a minute and when a sidecar ends.';

-- What is remembered of places is kept here: a process that remembers them by itself outlives the server, and a standby
-- that lacks the last of the WAL, or a backup, gives the same places out again.
ALTER TABLE embedsidecar.turn
    ADD COLUMN passed   bigint[] NOT NULL DEFAULT '{0,0,0,0}',
    ADD COLUMN passable bigint   NOT NULL DEFAULT 0,
    ADD COLUMN top      bigint   NOT NULL DEFAULT 0,
    ADD COLUMN writers  text[]   NOT NULL DEFAULT '{}',
    ADD COLUMN live     bigint   NOT NULL DEFAULT 0;
ALTER TABLE embedsidecar.turn SET (fillfactor = 50);
COMMENT ON COLUMN embedsidecar.turn.passed IS
    'Up to these places nothing waits in lanes 0 to 3, and nothing ever will.';
COMMENT ON COLUMN embedsidecar.turn.passable IS 'Whatever holds a place up to here can be seen.';
COMMENT ON COLUMN embedsidecar.turn.top IS 'Places were given out up to here when the writers were noted.';
COMMENT ON COLUMN embedsidecar.turn.writers IS 'The transactions that may have held one of these unseen.';
COMMENT ON COLUMN embedsidecar.turn.live IS 'Up to this place no lease lives.';

-- Someone's open transaction may hold a task's row, or all of the table: what the stream has for it waits here, and
-- the stream goes on.
CREATE TABLE embedsidecar.aside (
    aside_id     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pipeline_id  integer     NOT NULL,
    row_key      text        COLLATE "C",
    lane         smallint    NOT NULL,
    xid          bigint      NOT NULL,
    first_lsn    pg_lsn      NOT NULL,
    last_lsn     pg_lsn      NOT NULL,
    committed_at timestamptz NOT NULL,
    reason       text        NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE embedsidecar.aside IS
    'Changes that are to become tasks when no one holds what they need, in the order in which they came.';
COMMENT ON COLUMN embedsidecar.aside.row_key IS 'NULL: every row of the pipeline is to be compared, for the reason.';
COMMENT ON COLUMN embedsidecar.aside.xid IS 'The low half of the id of its transaction.';

-- Told: what was done before this version is not told of any more.
ALTER TABLE embedsidecar.audit_log ADD COLUMN told boolean NOT NULL DEFAULT true;
ALTER TABLE embedsidecar.audit_log ALTER COLUMN told SET DEFAULT false;
CREATE INDEX audit_untold_idx ON embedsidecar.audit_log (audit_id) WHERE NOT told;
COMMENT ON TABLE embedsidecar.audit_log IS
    'Who had what done to which pipeline: of each role the newest 100,000 entries, for 400 days. An action that is '
    'done in portions has one.';
COMMENT ON COLUMN embedsidecar.audit_log.told IS 'A sidecar has written it to its log, as it is now.';
COMMENT ON TABLE embedsidecar.history IS
    'What happened to each row recently: one entry per finished look, kept for 24 hours, and no more than 4 GB: the '
    'oldest goes first.';

-- A partition that comes, goes or is emptied concerns no row of the others.
ALTER TABLE embedsidecar.scan ADD partitions oid[], ADD lost boolean NOT NULL DEFAULT true;
COMMENT ON COLUMN embedsidecar.scan.partitions IS 'The partitions whose rows are compared; NULL: every row is.';
COMMENT ON COLUMN embedsidecar.scan.lost IS 'Rows may be gone: every ledger entry is compared with the rows, too.';

-- Functions that have another form now, or are gone.
DROP FUNCTION IF EXISTS embedsidecar.resume(text, boolean, text), embedsidecar.resume_for(text, interval, boolean,
    text),
    embedsidecar.rescan(text, boolean, text), embedsidecar.switch(text, boolean, boolean, text),
    embedsidecar.put_aside(text, integer, text[], text, text, text[], interval, integer, boolean, text, bigint),
    embedsidecar.begin_action(text, integer, jsonb, text, bigint, integer, text[], boolean),
    embedsidecar.end_action(bigint, text, bigint, text);
