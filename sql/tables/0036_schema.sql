-- The tables of embedsidecar. They live in the database of the data, so that data, queue and checkpoint commit, restore
-- and fail over together. Files with later numbers alter those of databases that an older program has set up.

CREATE TABLE embedsidecar.installation (
    only_row        boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
    installation_id uuid        NOT NULL DEFAULT gen_random_uuid(),
    secret          bytea       NOT NULL,
    enabled         boolean     NOT NULL DEFAULT true,
    created_at      timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE embedsidecar.installation IS 'One row: what holds for all pipelines of this database.';
COMMENT ON COLUMN embedsidecar.installation.secret IS 'Secret. Signs questions in the WAL, and names traces.';
COMMENT ON COLUMN embedsidecar.installation.enabled IS
    'Master switch: false stops every lease. Changes are still queued, so nothing is lost.';

CREATE TABLE embedsidecar.lsn_checkpoint (
    slot_name         name        PRIMARY KEY,
    publication       name        NOT NULL,
    publication_oid   oid         NOT NULL,
    system_id         text        NOT NULL,
    timeline          integer     NOT NULL,
    consistent_point  pg_lsn      NOT NULL,
    lsn               pg_lsn      NOT NULL,
    epoch             bigint      NOT NULL DEFAULT 0,
    created_at        timestamptz NOT NULL DEFAULT now(),
    saved_at          timestamptz NOT NULL DEFAULT now(),
    changes_unchanged bigint      NOT NULL DEFAULT 0,
    changes_joined    bigint      NOT NULL DEFAULT 0,
    hints_ignored     bigint      NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
COMMENT ON TABLE embedsidecar.lsn_checkpoint IS 'One row per slot: all changes before lsn are in the queue or done.';
COMMENT ON COLUMN embedsidecar.lsn_checkpoint.publication_oid IS
    'A publication that was dropped and made again has another one: changes may have been missed between.';
COMMENT ON COLUMN embedsidecar.lsn_checkpoint.epoch IS
    'Raised by each streamer that takes the slot; one with an older epoch cannot move the checkpoint.';
COMMENT ON COLUMN embedsidecar.lsn_checkpoint.changes_unchanged IS
    'Changes of rows that touched neither text nor vector, as the WAL alone told; this and the next are written once '
    'a minute and when a sidecar ends.';
COMMENT ON COLUMN embedsidecar.lsn_checkpoint.changes_joined IS
    'Changes of rows that waited already, and were embedded with the change before.';
COMMENT ON COLUMN embedsidecar.lsn_checkpoint.hints_ignored IS
    'Hints that embedsidecar.hint has not made: somebody has written them who may not. Written once a minute.';

-- A model is changed in place: a pipeline may have another generation beside the one that serves. Each generation has a
-- row, a ledger, tasks and scans of its own, so that the same program keeps both true. A switch exchanges the names of
-- their destinations and rows, never their numbers: whoever knows a generation by its number knows its model.
CREATE TABLE embedsidecar.pipeline (
    pipeline_id         integer        GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name                text           NOT NULL UNIQUE,
    slot_name           name           NOT NULL REFERENCES embedsidecar.lsn_checkpoint,
    table_oid           oid            NOT NULL,
    table_schema        name           NOT NULL,
    table_name          name           NOT NULL,
    column_numbers      jsonb          NOT NULL DEFAULT '{}',
    source_columns      name[]         NOT NULL,
    text_expression     text,
    filter_expression   text,
    functions           text[]         NOT NULL DEFAULT '{}',
    key_columns         name[]         NOT NULL,
    watched_columns     name[],
    generated_columns   jsonb          NOT NULL DEFAULT '{}',
    destination_column  name,
    destination_schema  name,
    destination_table   name,
    destination_oid     oid,
    dims                integer        NOT NULL CHECK (dims > 0),
    plugin              text           NOT NULL,
    model               text           NOT NULL,
    chunking            jsonb          NOT NULL DEFAULT '{}',
    generation          integer        NOT NULL DEFAULT 1,
    definition_version  integer        NOT NULL DEFAULT 1,
    definitions         jsonb          NOT NULL DEFAULT '{}',
    fingerprint         text           NOT NULL,
    lane                smallint       NOT NULL DEFAULT 1 CHECK (lane BETWEEN 0 AND 3),
    enabled             boolean        NOT NULL DEFAULT true,
    active_hours        text           NOT NULL DEFAULT '',
    active_minutes      int4multirange,
    active_zone         text           NOT NULL DEFAULT 'UTC',
    open_until          timestamptz,
    status              text           NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'missing', 'misconfigured',
        'unpublished')),
    status_detail       text           NOT NULL DEFAULT '',
    catalogue           jsonb          NOT NULL DEFAULT '{}',
    lease_epoch         bigint         NOT NULL DEFAULT 0,
    created_at          timestamptz    NOT NULL DEFAULT now(),
    beside              integer        REFERENCES embedsidecar.pipeline ON DELETE CASCADE,
    served              boolean        NOT NULL DEFAULT true,
    switches            bigint         NOT NULL DEFAULT 0,
    wish                jsonb,
    priority_expression text,
    origin              text           NOT NULL DEFAULT '',
    ignore_expression   text,
    joins               jsonb,
    joined_text         text,
    budget              jsonb,
    model_budget        jsonb,
    max_attempts        smallint       CHECK (max_attempts BETWEEN 1 AND 1000),
    labels              jsonb          NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(labels) = 'object'),
    batch               jsonb,
    compared            jsonb,
    CHECK ((destination_column IS NULL) <> (destination_table IS NULL))
);
COMMENT ON TABLE embedsidecar.pipeline IS 'One source table, its text, one model and one destination.';
COMMENT ON COLUMN embedsidecar.pipeline.watched_columns IS
    'Columns other than the key that text and filter read; NULL: not known, every UPDATE counts as a change.';
COMMENT ON COLUMN embedsidecar.pipeline.generated_columns IS
    'What columns the generated ones of the table were made of when it was found out what text and filter read.';
COMMENT ON COLUMN embedsidecar.pipeline.chunking IS
    'How texts are cut into chunks: strategy, tokens, overlap, context. Empty: not at all.';
COMMENT ON COLUMN embedsidecar.pipeline.fingerprint IS
    'What the vectors of this generation were made with; a worker whose embedder differs gets no lease.';
COMMENT ON COLUMN embedsidecar.pipeline.catalogue IS
    'What the catalogue said of the table when the pipeline was last known to be whole: a difference asks for a scan.';
COMMENT ON COLUMN embedsidecar.pipeline.lease_epoch IS
    'Raised when what workers have read may be of rows that this server never had: leases of an older epoch hold '
    'nothing, and nothing is written under them.';
COMMENT ON COLUMN embedsidecar.pipeline.column_numbers IS
    'The numbers of the columns of table_oid by the names that they had whenever the pipeline was written down.';
COMMENT ON COLUMN embedsidecar.pipeline.functions IS
    'Functions of the user''s that text, filter and context call, by their names.';
COMMENT ON COLUMN embedsidecar.pipeline.destination_oid IS
    'The embedding table, as it was when the pipeline was written down: where none has its name any more it is found '
    'by this.';
COMMENT ON COLUMN embedsidecar.pipeline.definition_version IS 'Raised by each change of what is configured.';
COMMENT ON COLUMN embedsidecar.pipeline.definitions IS
    'Digests of the definitions there were, each with the version at which it was applied last; at most 50.';
COMMENT ON COLUMN embedsidecar.pipeline.active_hours IS 'When it works, as configured; empty: always.';
COMMENT ON COLUMN embedsidecar.pipeline.active_minutes IS
    'The same in minutes of the week, from Monday 00:00 on; NULL: all of them, none: only when someone asks.';
COMMENT ON COLUMN embedsidecar.pipeline.active_zone IS 'The time zone of these.';
COMMENT ON COLUMN embedsidecar.pipeline.open_until IS 'Someone has it work outside of its hours until then.';
COMMENT ON COLUMN embedsidecar.pipeline.beside IS
    'The pipeline whose other generation this is: nobody searches it. NULL: it serves.';
COMMENT ON COLUMN embedsidecar.pipeline.served IS
    'It serves, or it was the last to do so. false: it is the next generation.';
COMMENT ON COLUMN embedsidecar.pipeline.switches IS 'How often it has begun or ended to serve.';
COMMENT ON COLUMN embedsidecar.pipeline.wish IS
    'The model that somebody asked for by SQL, until a sidecar has made the next generation, and why it has not.';
COMMENT ON COLUMN embedsidecar.pipeline.priority_expression IS
    'How urgent a change of a row is, by the row: gives the name of a lane. NULL: the column lane says it.';
COMMENT ON COLUMN embedsidecar.pipeline.origin IS 'The file that configures it; empty: none is known.';
COMMENT ON COLUMN embedsidecar.pipeline.ignore_expression IS
    'SQL over the text: an edit that does not change its value needs no new vector. NULL: every edit does.';
COMMENT ON COLUMN embedsidecar.pipeline.joins IS
    'Tables whose rows have a part in the text, with what the catalog says of them. NULL: none.';
COMMENT ON COLUMN embedsidecar.pipeline.joined_text IS
    'The SQL of the whole text of the row called r, where tables are joined.';
COMMENT ON COLUMN embedsidecar.pipeline.budget IS
    'What it may spend: tokens, money, tokens_per_day, money_per_day, and the time zone of the day. NULL: no limit.';
COMMENT ON COLUMN embedsidecar.pipeline.model_budget IS
    'What all pipelines with its model may spend together, in the same form. NULL: no limit.';
COMMENT ON COLUMN embedsidecar.pipeline.max_attempts IS
    'Failures of a row after which it is a dead letter. NULL: as the sidecar is configured for all pipelines.';
COMMENT ON COLUMN embedsidecar.pipeline.labels IS 'Names and values that users have given it, to find it by.';
COMMENT ON COLUMN embedsidecar.pipeline.batch IS
    'When its scans make batch jobs, and of how many rows: when, over. NULL: never.';
COMMENT ON COLUMN embedsidecar.pipeline.compared IS
    'Of a next generation that serves by itself when its answers are like enough: overlap, least (what it must be), '
    'questions, and at (when it was compared). NULL: it was not.';
CREATE UNIQUE INDEX pipeline_beside_idx ON embedsidecar.pipeline (beside);

CREATE TABLE embedsidecar.route (
    pipeline_id integer     PRIMARY KEY REFERENCES embedsidecar.pipeline ON DELETE CASCADE,
    generation  integer     NOT NULL,
    definition  bytea       NOT NULL,
    epoch       bigint      NOT NULL,
    routed_at   timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE embedsidecar.route IS
    'What the streamer acknowledged: the definition of each pipeline that it matches changes with. No row, or one of '
    'another generation: changes may pass unseen, and nothing counts as caught up.';
COMMENT ON COLUMN embedsidecar.route.generation IS 'Of the pipeline, as the streamer knows it.';
COMMENT ON COLUMN embedsidecar.route.definition IS
    'Digest of what the catalogue alone may change about the matching: table, watched columns, destination column.';
COMMENT ON COLUMN embedsidecar.route.epoch IS 'Of the slot, when it was written: of the streamer that said so.';

CREATE TABLE embedsidecar.scan (
    pipeline_id   integer     PRIMARY KEY REFERENCES embedsidecar.pipeline ON DELETE CASCADE,
    reason        text        NOT NULL DEFAULT 'backfill',
    phase         text        NOT NULL DEFAULT 'waiting' CHECK (phase IN ('waiting', 'rows', 'orphans', 'done')),
    requested     bigint      NOT NULL DEFAULT 1,
    started       bigint      NOT NULL DEFAULT 0,
    barrier       xid8        NOT NULL,
    after_key     text,
    rows_expected bigint      NOT NULL DEFAULT 0,
    rows_seen     bigint      NOT NULL DEFAULT 0,
    tasks_made    bigint      NOT NULL DEFAULT 0,
    requested_at  timestamptz NOT NULL DEFAULT now(),
    started_at    timestamptz,
    finished_at   timestamptz,
    gap           boolean     NOT NULL DEFAULT false,
    partitions    oid[],
    lost          boolean     NOT NULL DEFAULT true,
    owners        text[],
    asked         bigint
);
COMMENT ON TABLE embedsidecar.scan IS
    'Backfill and reconcile of a pipeline: compare every row with the ledger, then every ledger entry with the rows.';
COMMENT ON COLUMN embedsidecar.scan.requested IS
    'Raised by each request; a scan that ends with started < requested begins again.';
COMMENT ON COLUMN embedsidecar.scan.barrier IS
    'The scan starts when every transaction before this one has ended and is visible.';
COMMENT ON COLUMN embedsidecar.scan.after_key IS 'The last row_key of the current phase that is done.';
COMMENT ON COLUMN embedsidecar.scan.started_at IS 'When the scan that runs, or ran last, began.';
COMMENT ON COLUMN embedsidecar.scan.finished_at IS 'When a scan last ended; NULL: none has, so this is the backfill.';
COMMENT ON COLUMN embedsidecar.scan.gap IS 'Changes may have been missed since the last comparison ended.';
COMMENT ON COLUMN embedsidecar.scan.partitions IS 'The partitions whose rows are compared; NULL: every row is.';
COMMENT ON COLUMN embedsidecar.scan.lost IS 'Rows may be gone: every ledger entry is compared with the rows, too.';
COMMENT ON COLUMN embedsidecar.scan.owners IS
    'Rows that are compared, named by what is joined to them: the place of the joined table, and the values by which '
    'its row hangs on theirs. With partitions NULL, too: every row is.';
COMMENT ON COLUMN embedsidecar.scan.asked IS 'The action in the audit that asked for the next one; NULL: none did.';

CREATE TYPE embedsidecar.task_state AS ENUM ('todo', 'retrying', 'failed', 'cancelled');
COMMENT ON TYPE embedsidecar.task_state IS
    'What a task is stored as. That one is in progress its lease says, which is a row of its own.';
CREATE SEQUENCE embedsidecar.task_seq AS bigint CACHE 1;

CREATE TABLE embedsidecar.task (
    task_id           bigint                  GENERATED ALWAYS AS IDENTITY,
    pipeline_id       integer                 NOT NULL,
    row_key           text                    COLLATE "C" NOT NULL,
    state             embedsidecar.task_state NOT NULL DEFAULT 'todo',
    lane              smallint                NOT NULL,
    seq               bigint                  NOT NULL DEFAULT nextval('embedsidecar.task_seq'),
    gen               bigint                  NOT NULL DEFAULT 1,
    xid               xid8                    NOT NULL,
    first_lsn         pg_lsn                  NOT NULL,
    last_lsn          pg_lsn                  NOT NULL,
    committed_at      timestamptz             NOT NULL,
    next_lsn          pg_lsn,
    next_committed_at timestamptz,
    attempt           smallint                NOT NULL DEFAULT 0 CHECK (attempt BETWEEN 0 AND 1000),
    losses            smallint                NOT NULL DEFAULT 0,
    lost_leases       smallint                NOT NULL DEFAULT 0,
    due_at            timestamptz,
    waits_since       timestamptz,
    error_class       text,
    error_code        text,
    error_message     text,
    enqueued_at       timestamptz             NOT NULL DEFAULT now(),
    seen              bytea,
    started_at        timestamptz,
    finished_at       timestamptz,
    PRIMARY KEY (task_id),
    UNIQUE (row_key, pipeline_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.05);
-- The unique key begins with row_key on purpose: with old statistics a planner may think a pipeline has one task, and
-- would then claim by an index that begins with pipeline_id, reading all of a million tasks for each claim.
COMMENT ON TABLE embedsidecar.task IS
    'Look at this row: at most one per pipeline and key. A task never holds text or a vector.';
COMMENT ON COLUMN embedsidecar.task.row_key IS
    'The key as Postgres prints it; several columns are joined by | with \ and | escaped by \.';
COMMENT ON COLUMN embedsidecar.task.seq IS
    'Place in the queue of its lane; a new one each time the task becomes due again.';
COMMENT ON COLUMN embedsidecar.task.gen IS
    'Raised by every change of the row; a worker that finishes with an older one must look again.';
COMMENT ON COLUMN embedsidecar.task.xid IS 'The last transaction that changed the row: no lease before it is visible.';
COMMENT ON COLUMN embedsidecar.task.first_lsn IS 'The oldest change not yet satisfied.';
COMMENT ON COLUMN embedsidecar.task.next_lsn IS
    'No later than the oldest change that came after the lease, if there is one; it becomes first_lsn when the task '
    'stays open.';
COMMENT ON COLUMN embedsidecar.task.losses IS
    'Leases in which the embedder died, or that were lost (these up to 2); from 2 on the row is tried alone, after 3 '
    'more it is a dead letter.';
COMMENT ON COLUMN embedsidecar.task.lost_leases IS
    'Leases that were lost with their worker, whatever the cause; after 20 in a row the row is a dead letter.';
COMMENT ON COLUMN embedsidecar.task.pipeline_id IS
    'Without a foreign key: who adds a task must not wait for who writes the pipeline, and a pipeline goes without '
    'its tasks, which follow in portions.';
COMMENT ON COLUMN embedsidecar.task.next_committed_at IS 'When that was committed.';
COMMENT ON COLUMN embedsidecar.task.waits_since IS
    'While retrying: when the pause began. One that began in the future ends: the clock was set back.';
COMMENT ON COLUMN embedsidecar.task.seen IS
    'The row as its writer saw it who says that it needs no new vector: hashes of its watched columns. NULL: it may '
    'need one.';
COMMENT ON COLUMN embedsidecar.task.started_at IS
    'When the last try began that left it in the queue; NULL: there was none. Written when the try ends.';
COMMENT ON COLUMN embedsidecar.task.finished_at IS 'When that try ended.';
COMMENT ON COLUMN embedsidecar.task.due_at IS
    'When it is due, or was, if it waits or has waited for a time; NULL: it was due at once.';
CREATE INDEX task_todo_idx ON embedsidecar.task (pipeline_id, lane, seq) WHERE state = 'todo';
CREATE INDEX task_alone_idx ON embedsidecar.task (pipeline_id, seq) WHERE state = 'todo' AND losses >= 2;
CREATE INDEX task_retry_idx ON embedsidecar.task (pipeline_id, lane, due_at) WHERE state = 'retrying';
CREATE INDEX task_cancelled_idx ON embedsidecar.task (pipeline_id) WHERE state = 'cancelled';
-- Errors are grouped by this index alone: it holds dead letters only, so that other tasks write nothing to it.
CREATE INDEX task_failed_idx ON embedsidecar.task (pipeline_id, error_class, error_code, committed_at, row_key)
    WHERE state = 'failed';

-- Leases are rows of their own, one for a batch: a task is not written when it is leased, extended, given back or taken
-- over, and no one who writes back holds a task.
CREATE TABLE embedsidecar.lease (
    pipeline_id  integer     NOT NULL,
    place        bigint      GENERATED ALWAYS AS IDENTITY,
    token        bigint      NOT NULL,
    worker_id    bigint      NOT NULL,
    epoch        bigint      NOT NULL,
    timeline     integer     NOT NULL,
    extended_at  timestamptz NOT NULL,
    leased_until timestamptz NOT NULL,
    task_ids     bigint[]    NOT NULL,
    started_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline_id, place)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE embedsidecar.lease IS
    'Who works on which tasks: one row per batch, gone when the last of its tasks is finished.';
COMMENT ON COLUMN embedsidecar.lease.place IS
    'In the order of the leases of a pipeline, so that whoever looks for those that live can leave out what is '
    'long over.';
COMMENT ON COLUMN embedsidecar.lease.token IS 'Chosen by the worker, who may never hear that he got the lease.';
COMMENT ON COLUMN embedsidecar.lease.epoch IS 'lease_epoch of the pipeline.';
COMMENT ON COLUMN embedsidecar.lease.timeline IS
    'Of the server. A standby that was promoted has another one from its first moment on, and may lack what was read '
    'on the old one.';
COMMENT ON COLUMN embedsidecar.lease.started_at IS 'When it was taken.';

-- What is remembered of places is kept here: a process that remembers them by itself outlives the server, and a standby
-- that lacks the last of the WAL, or a backup, gives the same places out again.
CREATE TABLE embedsidecar.turn (
    pipeline_id integer  PRIMARY KEY REFERENCES embedsidecar.pipeline ON DELETE CASCADE,
    passed      bigint[] NOT NULL DEFAULT '{0,0,0,0}',
    passable    bigint   NOT NULL DEFAULT 0,
    top         bigint   NOT NULL DEFAULT 0,
    writers     text[]   NOT NULL DEFAULT '{}',
    live        bigint   NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
COMMENT ON TABLE embedsidecar.turn IS
    'Locked by who leases tasks of a pipeline, so that no two choose at the same moment.';
COMMENT ON COLUMN embedsidecar.turn.passed IS
    'Up to these places nothing waits in lanes 0 to 3, and nothing ever will.';
COMMENT ON COLUMN embedsidecar.turn.passable IS 'Whatever holds a place up to here can be seen.';
COMMENT ON COLUMN embedsidecar.turn.top IS 'Places were given out up to here when the writers were noted.';
COMMENT ON COLUMN embedsidecar.turn.writers IS 'The transactions that may have held one of these unseen.';
COMMENT ON COLUMN embedsidecar.turn.live IS 'Up to this place no lease lives.';

CREATE TABLE embedsidecar.ledger (
    pipeline_id integer     NOT NULL,
    row_key     text        COLLATE "C" NOT NULL,
    source_hash bytea       NOT NULL,
    text_hash   bytea,
    vector_hash bytea       NOT NULL,
    generation  integer     NOT NULL,
    lsn         pg_lsn      NOT NULL,
    written_at  timestamptz NOT NULL DEFAULT now(),
    skipped     bytea,
    norm_hash   bytea,
    ignored     boolean     NOT NULL DEFAULT false,
    PRIMARY KEY (pipeline_id, row_key)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
COMMENT ON TABLE embedsidecar.ledger IS
    'What was last written for each row, so that a change that changes nothing costs nothing.';
COMMENT ON COLUMN embedsidecar.ledger.source_hash IS
    '16 bytes per watched column: the start of the SHA-256 of its output text.';
COMMENT ON COLUMN embedsidecar.ledger.text_hash IS
    'SHA-256 of the text (with chunks: of settings, context and text); NULL: no text (empty, or excluded by the '
    'filter), so no vector.';
COMMENT ON COLUMN embedsidecar.ledger.vector_hash IS
    '8 bytes of the SHA-256 of the vector as little-endian float32 (with chunks: of their text hashes in order); '
    'eight zero bytes: no vector.';
COMMENT ON COLUMN embedsidecar.ledger.skipped IS
    'SHA-256 of the text of which its writer says that it needs no new vector: the vector is of the text before, or '
    'there is none. NULL: nobody says so.';
COMMENT ON COLUMN embedsidecar.ledger.norm_hash IS
    'SHA-256 of text_hash and the hash of ignore_expression and its value for that text. NULL: there is no such '
    'expression, or it gave NULL.';
COMMENT ON COLUMN embedsidecar.ledger.ignored IS
    'The text was edited since its vector was made, in nothing that ignore_expression counts.';
CREATE INDEX ledger_text_idx ON embedsidecar.ledger (text_hash) WHERE text_hash IS NOT NULL;

-- A ring of partitions: pruning is TRUNCATE of the oldest, which a role may be granted, while dropping one needs its
-- owner.
CREATE TABLE embedsidecar.history (
    bucket       smallint    NOT NULL,
    finished_at  timestamptz NOT NULL DEFAULT now(),
    pipeline_id  integer     NOT NULL,
    row_key      text        COLLATE "C" NOT NULL,
    outcome      text        NOT NULL,
    attempt      smallint    NOT NULL,
    worker_id    bigint,
    committed_at timestamptz NOT NULL,
    lsn          pg_lsn      NOT NULL,
    error_code   text,
    took_ms      integer,
    generation   integer,
    created_at   timestamptz,
    scheduled_at timestamptz
) PARTITION BY LIST (bucket);
COMMENT ON TABLE embedsidecar.history IS
    'What happened to each row recently: one entry per finished look. prune_history says how much is kept.';
COMMENT ON COLUMN embedsidecar.history.took_ms IS
    'From lease to end of its batch, in milliseconds; NULL: an older program wrote it.';
COMMENT ON COLUMN embedsidecar.history.generation IS
    'Of the pipeline: what the vector was made with; NULL: as above, or it was not asked.';
COMMENT ON COLUMN embedsidecar.history.created_at IS 'When the task was made; NULL: there was none.';
COMMENT ON COLUMN embedsidecar.history.scheduled_at IS 'When it was due, if it waited for a time.';
DO $$
BEGIN
    FOR i IN 0..7 LOOP
        EXECUTE format('CREATE TABLE embedsidecar.history_%s PARTITION OF embedsidecar.history FOR VALUES IN (%s)', i,
            i);
        EXECUTE format('CREATE INDEX ON embedsidecar.history_%s (pipeline_id, row_key)', i);
    END LOOP;
END $$;

-- What only a running sidecar knows is told by its row, written when it changes: status asks the tables alone.
CREATE TABLE embedsidecar.worker (
    worker_id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instance          text        NOT NULL,
    version           text        NOT NULL,
    started_at        timestamptz NOT NULL DEFAULT now(),
    last_seen_at      timestamptz NOT NULL DEFAULT now(),
    slot_name         name        NOT NULL DEFAULT '',
    session_name      text        NOT NULL DEFAULT '',
    stream            text        NOT NULL DEFAULT 'starting',
    stream_detail     text        NOT NULL DEFAULT '',
    problems          jsonb       NOT NULL DEFAULT '{}',
    succeeded_24h     bigint      NOT NULL DEFAULT 0,
    failed_24h        bigint      NOT NULL DEFAULT 0,
    last_batch_at     timestamptz,
    role              text        NOT NULL DEFAULT '',
    host              text        NOT NULL DEFAULT '',
    speeds            jsonb       NOT NULL DEFAULT '{}',
    quiet_until       timestamptz
) WITH (fillfactor = 50);
COMMENT ON TABLE embedsidecar.worker IS
    'Sidecars that work this queue; one not seen for a while is dead and its leases run out.';
COMMENT ON COLUMN embedsidecar.worker.session_name IS
    'application_name of its sessions: a worker without one has ended without a word.';
COMMENT ON COLUMN embedsidecar.worker.stream IS
    'What it does about the slot: starting, streaming, standby, making (the slot), stuck or none.';
COMMENT ON COLUMN embedsidecar.worker.stream_detail IS 'Why its stream is not what it should be.';
COMMENT ON COLUMN embedsidecar.worker.problems IS 'Why it does not work a pipeline, by pipeline_id: code and detail.';
COMMENT ON COLUMN embedsidecar.worker.succeeded_24h IS
    'Rows that it finished in the last 24 hours; written with its sign of life, once a minute.';
COMMENT ON COLUMN embedsidecar.worker.failed_24h IS 'Rows that it made dead letters of meanwhile.';
COMMENT ON COLUMN embedsidecar.worker.last_batch_at IS 'When its last batch ended; NULL: there was none.';
COMMENT ON COLUMN embedsidecar.worker.role IS 'all, stream or work; empty: a version of before has not said it.';
COMMENT ON COLUMN embedsidecar.worker.host IS 'The name of its machine, as that has it.';
COMMENT ON COLUMN embedsidecar.worker.speeds IS
    'What it has done recently in a second, by pipeline_id: rows, texts, calls of the embedder, and milliseconds of a '
    'call. Written every ten seconds while something is done.';
COMMENT ON COLUMN embedsidecar.worker.quiet_until IS
    'Nothing changed, so it has left; it is back by then, or as soon as something changes. NULL: it is there.';

CREATE TABLE embedsidecar.audit_log (
    audit_id    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    acted_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    role_name   name        NOT NULL DEFAULT session_user,
    said_by     text        NOT NULL DEFAULT '',
    client_addr inet        DEFAULT inet_client_addr(),
    application text        NOT NULL DEFAULT current_setting('application_name'),
    action      text        NOT NULL,
    pipeline    text,
    arguments   jsonb       NOT NULL DEFAULT '{}',
    result      text        NOT NULL DEFAULT '',
    changed     bigint      NOT NULL DEFAULT 0,
    finished_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    place       bigint      NOT NULL DEFAULT 0,
    after_key   text        COLLATE "C" NOT NULL DEFAULT '',
    told        boolean     NOT NULL DEFAULT false,
    open        boolean     NOT NULL DEFAULT false
);
COMMENT ON TABLE embedsidecar.audit_log IS
    'Who had what done to which pipeline: of each role the newest 100,000 entries, for 400 days. An action that is '
    'done in portions has one.';
COMMENT ON COLUMN embedsidecar.audit_log.said_by IS
    'Who the program that acted says it was asked by; no one proves it.';
COMMENT ON COLUMN embedsidecar.audit_log.pipeline IS 'Its name; NULL: all of them.';
COMMENT ON COLUMN embedsidecar.audit_log.finished_at IS 'When the last portion so far was done.';
COMMENT ON COLUMN embedsidecar.audit_log.place IS
    'Of the queue when the action began: what got a place since is left alone by its further portions.';
COMMENT ON COLUMN embedsidecar.audit_log.after_key IS 'Where the next portion begins.';
COMMENT ON COLUMN embedsidecar.audit_log.told IS 'A sidecar has written it to its log, as it is now.';
COMMENT ON COLUMN embedsidecar.audit_log.open IS 'A job that is under way: result says at which stage.';
CREATE INDEX audit_untold_idx ON embedsidecar.audit_log (audit_id) WHERE NOT told;
CREATE INDEX audit_open_idx ON embedsidecar.audit_log (audit_id) WHERE open;

CREATE UNLOGGED TABLE embedsidecar.answer (
    question bytea       PRIMARY KEY,
    vector   text,
    problem  text,
    made_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((vector IS NULL) <> (problem IS NULL))
);
COMMENT ON TABLE embedsidecar.answer IS
    'Vectors of texts that someone has asked for, and scores of texts, for a minute or two. No text is here. A crash '
    'of the server empties it.';
COMMENT ON COLUMN embedsidecar.answer.question IS 'SHA-256 of pipeline, role and text, and of the texts to be scored.';
COMMENT ON COLUMN embedsidecar.answer.vector IS
    'As the pipeline''s model made it, as pgvector reads it; scores are an array of real.';
COMMENT ON COLUMN embedsidecar.answer.problem IS 'Why there is none.';
COMMENT ON COLUMN embedsidecar.answer.made_at IS 'When. Whoever asks later than a minute after that asks again.';
CREATE INDEX answer_made_idx ON embedsidecar.answer (made_at);

CREATE TYPE embedsidecar.found_row AS (row_key text, key jsonb, distance double precision, chunk_no integer,
    chunk_text text);
COMMENT ON TYPE embedsidecar.found_row IS 'A row that search or neighbours has found.';
COMMENT ON COLUMN embedsidecar.found_row.row_key IS 'Its key as embedsidecar.tasks shows it.';
COMMENT ON COLUMN embedsidecar.found_row.key IS 'The key''s columns with their values.';
COMMENT ON COLUMN embedsidecar.found_row.distance IS
    'Cosine distance, from 0 to 2; for a destination of bits how many differ; for sparse vectors the negative inner '
    'product.';
COMMENT ON COLUMN embedsidecar.found_row.chunk_no IS 'Of a pipeline that cuts texts: the nearest chunk, from 0.';
COMMENT ON COLUMN embedsidecar.found_row.chunk_text IS 'Its text, where the pipeline stores it.';

-- Locked for as long as one init sets up, or one sidecar builds an index: they hold no rows.
CREATE TABLE embedsidecar.init_lock ();
COMMENT ON TABLE embedsidecar.init_lock IS 'Locked while an init runs, so that another does not.';

CREATE TABLE embedsidecar.index_lock ();
COMMENT ON TABLE embedsidecar.index_lock IS 'Locked while a sidecar builds an index, so that another does not.';

-- A row of its own: that of the pipeline would be another version each minute, and another version asks every sidecar
-- to load its pipelines.
CREATE TABLE embedsidecar.spent (
    pipeline_id     integer          PRIMARY KEY REFERENCES embedsidecar.pipeline ON UPDATE CASCADE ON DELETE CASCADE,
    tokens_embedded bigint           NOT NULL DEFAULT 0,
    texts_embedded  bigint           NOT NULL DEFAULT 0,
    texts_reused    bigint           NOT NULL DEFAULT 0,
    rows_unchanged  bigint           NOT NULL DEFAULT 0,
    texts_cut       bigint           NOT NULL DEFAULT 0,
    search_tokens   bigint           NOT NULL DEFAULT 0,
    search_price    double precision NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
COMMENT ON TABLE embedsidecar.spent IS 'What pipelines have cost; written once a minute and when a sidecar ends.';
COMMENT ON COLUMN embedsidecar.spent.texts_cut IS
    'Texts that were embedded without their ends, since they are longer than the model takes.';
COMMENT ON COLUMN embedsidecar.spent.search_tokens IS
    'Tokens of searches: of questions, and of texts that rerankers scored, about. Those of rows are not among them.';
COMMENT ON COLUMN embedsidecar.spent.search_price IS 'Of these, by the prices of the models then.';

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

-- What sidecars are configured with, beside what is set up.
CREATE TABLE embedsidecar.configured (
    configured_id  bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    slot_name      name        NOT NULL,
    instance       text        NOT NULL,
    session_name   text        NOT NULL,
    file           text        NOT NULL DEFAULT '',
    loaded_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    digests        jsonb       NOT NULL DEFAULT '{}',
    problems       jsonb       NOT NULL DEFAULT '{}',
    settings       jsonb       NOT NULL DEFAULT '[]',
    refused        text        NOT NULL DEFAULT '',
    refused_at     timestamptz,
    hints          text[]      NOT NULL DEFAULT '{}',
    restart        text[]      NOT NULL DEFAULT '{}',
    takes_requests boolean     NOT NULL DEFAULT false
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
COMMENT ON COLUMN embedsidecar.configured.takes_requests IS 'It carries out requests for pipelines.';

-- How pipelines do over time. Each sidecar adds what it did to the rows of the minute and of the ten minutes. Rows are
-- used again in turn, so that their number depends on that of the pipelines alone.
CREATE TABLE embedsidecar.measure (
    pipeline_id    integer          NOT NULL,
    minutes        smallint         NOT NULL CHECK (minutes IN (1, 10)),
    place          smallint         NOT NULL,
    began          timestamptz      NOT NULL,
    rows_embedded  bigint           NOT NULL,
    rows_reused    bigint           NOT NULL,
    rows_failed    bigint           NOT NULL,
    texts_embedded bigint           NOT NULL,
    tokens         bigint           NOT NULL,
    price          double precision NOT NULL,
    backlog        bigint           NOT NULL,
    freshness      integer[]        NOT NULL,
    PRIMARY KEY (pipeline_id, minutes, place)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
COMMENT ON TABLE embedsidecar.measure IS
    'What each pipeline did in each minute of the last two hours, and in each ten minutes of the last seven days.';
COMMENT ON COLUMN embedsidecar.measure.pipeline_id IS '0: all pipelines together, those that were removed included.';
COMMENT ON COLUMN embedsidecar.measure.minutes IS 'How many minutes the row is of: 1 or 10.';
COMMENT ON COLUMN embedsidecar.measure.place IS 'Of 128 rows of a minute, or 1,024 of ten, that are used in turn.';
COMMENT ON COLUMN embedsidecar.measure.rows_embedded IS 'Rows that got a vector from the embedder.';
COMMENT ON COLUMN embedsidecar.measure.rows_reused IS 'Rows that got a vector that was known.';
COMMENT ON COLUMN embedsidecar.measure.rows_failed IS 'Rows that became dead letters.';
COMMENT ON COLUMN embedsidecar.measure.price IS
    'Of the tokens of rows and searches, by the prices of the models then; 0: they have none.';
COMMENT ON COLUMN embedsidecar.measure.backlog IS
    'Rows that waited at the end of a minute, up to about a million for each pipeline: the most of them.';
COMMENT ON COLUMN embedsidecar.measure.freshness IS
    'How many rows took how long from the commit to the vector: up to a millisecond, and up to the square root of two '
    'times the one before.';

-- Those of which a sidecar only tells what they would do have states of their own: whoever carries requests out, or
-- asks what is configured, finds none of them.
CREATE TABLE embedsidecar.request (
    request_id   bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    slot_name    name        NOT NULL,
    action       text        NOT NULL CHECK (action IN ('create', 'change', 'drop')),
    pipeline     text        NOT NULL,
    definition   jsonb       NOT NULL DEFAULT '{}',
    role_name    name        NOT NULL,
    role_oid     oid         NOT NULL,
    said_by      text        NOT NULL DEFAULT '',
    audit_id     bigint,
    state        text        NOT NULL DEFAULT 'waiting',
    taken_by     text        NOT NULL DEFAULT '',
    tries        integer     NOT NULL DEFAULT 0,
    reason       text        NOT NULL DEFAULT '',
    hints        text[]      NOT NULL DEFAULT '{}',
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at  timestamptz,
    dry_run      boolean     NOT NULL DEFAULT false,
    plan         jsonb,
    CONSTRAINT request_state_check CHECK (CASE WHEN dry_run THEN state IN ('to_plan', 'planned', 'refused')
        ELSE state IN ('waiting', 'done', 'refused') END)
);
COMMENT ON TABLE embedsidecar.request IS
    'Pipelines to create, change or drop: each is carried out by one sidecar, in the order of their numbers.';
COMMENT ON COLUMN embedsidecar.request.definition IS
    'Of create the whole definition, as in the file; of change the keys that change: null takes one away.';
COMMENT ON COLUMN embedsidecar.request.role_name IS 'Who requested it; his rights count when it is carried out.';
COMMENT ON COLUMN embedsidecar.request.role_oid IS 'His number: another role of his name has other rights.';
COMMENT ON COLUMN embedsidecar.request.taken_by IS
    'application_name of who carries it out. Without a session of that name another begins again.';
COMMENT ON COLUMN embedsidecar.request.tries IS 'How often it was begun.';
COMMENT ON COLUMN embedsidecar.request.dry_run IS 'Nothing is done: plan tells what would be.';
COMMENT ON COLUMN embedsidecar.request.plan IS
    'Of a dry run what it would change, as embedsidecar plan tells it of a file.';
COMMENT ON COLUMN embedsidecar.request.audit_id IS 'Its entry in the audit; a dry run has none.';
CREATE INDEX request_waiting_idx ON embedsidecar.request (slot_name, request_id)
    WHERE state IN ('waiting', 'to_plan');

CREATE TABLE embedsidecar.declared (
    name       text   PRIMARY KEY,
    slot_name  name   NOT NULL,
    definition jsonb  NOT NULL,
    request_id bigint NOT NULL
);
COMMENT ON TABLE embedsidecar.declared IS
    'Pipelines that are configured here instead of in a file: sidecars have them beside those of their files.';
COMMENT ON COLUMN embedsidecar.declared.request_id IS 'The request that it was last changed by.';

CREATE TABLE embedsidecar.spending (
    kind         text             NOT NULL CHECK (kind IN ('model', 'pipeline')),
    name         text             NOT NULL,
    zone         text             NOT NULL,
    day          date             NOT NULL,
    tokens_today bigint           NOT NULL DEFAULT 0,
    money_today  double precision NOT NULL DEFAULT 0,
    tokens       bigint           NOT NULL DEFAULT 0,
    money        double precision NOT NULL DEFAULT 0,
    PRIMARY KEY (kind, name)
);
COMMENT ON TABLE embedsidecar.spending IS
    'What was spent of each budget. It begins with the first call after the budget was configured, and stays when the '
    'budget or the pipeline is removed.';
COMMENT ON COLUMN embedsidecar.spending.kind IS 'Whether it is the budget of a pipeline or of a model.';
COMMENT ON COLUMN embedsidecar.spending.zone IS 'The time zone in which days begin.';
COMMENT ON COLUMN embedsidecar.spending.day IS 'The day of tokens_today and money_today.';

CREATE TABLE embedsidecar.hold (
    hold_id    bigint           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    model      text,
    pipeline   text,
    worker_id  bigint           NOT NULL,
    expires_at timestamptz      NOT NULL,
    likely     bigint           NOT NULL,
    most       bigint           NOT NULL,
    price      double precision NOT NULL
);
COMMENT ON TABLE embedsidecar.hold IS
    'Calls of embedders that budgets pay for and whose answer is not counted yet. What a killed sidecar leaves is '
    'counted as the most that the call can have taken.';
COMMENT ON COLUMN embedsidecar.hold.model IS 'The model whose budget pays; NULL: it has none. pipeline likewise.';
COMMENT ON COLUMN embedsidecar.hold.worker_id IS 'The sidecar; 0: another process.';
COMMENT ON COLUMN embedsidecar.hold.likely IS 'About how many tokens the call takes.';
COMMENT ON COLUMN embedsidecar.hold.most IS 'No fewer tokens than the call takes.';
COMMENT ON COLUMN embedsidecar.hold.price IS 'Of a million tokens; 0: none is configured.';

CREATE TABLE embedsidecar.history_turn (
    only_row boolean       PRIMARY KEY DEFAULT true CHECK (only_row),
    bucket   smallint      NOT NULL DEFAULT 0,
    began_at timestamptz   NOT NULL DEFAULT now(),
    ended_at timestamptz[] NOT NULL DEFAULT array_fill(now(), ARRAY[8])
);
COMMENT ON TABLE embedsidecar.history_turn IS
    'One row: which of the eight partitions of history is written. They are used in turn.';
COMMENT ON COLUMN embedsidecar.history_turn.began_at IS 'Since when it is this one.';
COMMENT ON COLUMN embedsidecar.history_turn.ended_at IS
    'The time of the newest entry of partitions 0 to 7, or later.';
INSERT INTO embedsidecar.history_turn DEFAULT VALUES;

CREATE TABLE embedsidecar.batch_job (
    job_id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pipeline_id  integer     NOT NULL,
    pipeline     text        NOT NULL,
    plugin       text        NOT NULL,
    model        text        NOT NULL,
    nonce        text        NOT NULL UNIQUE,
    state        text        NOT NULL CHECK (state IN ('gathering', 'closed', 'submitting', 'running', 'ended')),
    provider_id  text,
    rows         bigint      NOT NULL DEFAULT 0,
    texts        bigint      NOT NULL DEFAULT 0,
    tokens       bigint      NOT NULL DEFAULT 0,
    price        double precision NOT NULL DEFAULT 0,
    hold         bigint,
    tries        integer     NOT NULL DEFAULT 0,
    message      text        NOT NULL DEFAULT '',
    worker_id    bigint,
    next_at      timestamptz NOT NULL DEFAULT now(),
    changed_at   timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE embedsidecar.batch_job IS
    'Batch jobs of providers. One goes when the tasks of all its rows are done, or when its pipeline is gone and it '
    'was cancelled.';
COMMENT ON COLUMN embedsidecar.batch_job.pipeline_id IS 'No foreign key: a job must be cancelled when this is gone.';
COMMENT ON COLUMN embedsidecar.batch_job.nonce IS
    'What the provider keeps with the job, so that one whose number was not noted is found.';
COMMENT ON COLUMN embedsidecar.batch_job.state IS
    'gathering: a scan adds rows. closed: to be submitted. submitting: the provider may have it. running: it has. '
    'ended: its rows become tasks, which find the vectors here.';
COMMENT ON COLUMN embedsidecar.batch_job.rows IS 'About how many, when it was gathered.';
COMMENT ON COLUMN embedsidecar.batch_job.tokens IS 'About how many its texts have; once it has ended: what they had.';
COMMENT ON COLUMN embedsidecar.batch_job.price IS 'Of a million tokens; 0: none is configured.';
COMMENT ON COLUMN embedsidecar.batch_job.hold IS 'What it holds of budgets, until it has ended.';
COMMENT ON COLUMN embedsidecar.batch_job.tries IS 'How often in a row the last step has failed.';
COMMENT ON COLUMN embedsidecar.batch_job.worker_id IS 'The sidecar that has it in hand; another one takes it over.';
COMMENT ON COLUMN embedsidecar.batch_job.next_at IS 'When it is looked at next.';
CREATE UNIQUE INDEX batch_job_gathering_idx ON embedsidecar.batch_job (pipeline_id) WHERE state = 'gathering';
CREATE INDEX batch_job_pipeline_idx ON embedsidecar.batch_job (pipeline_id);

CREATE TABLE embedsidecar.batch_item (
    pipeline_id integer NOT NULL,
    row_key     text    COLLATE "C" NOT NULL,
    job_id      bigint  NOT NULL REFERENCES embedsidecar.batch_job ON DELETE CASCADE,
    released    boolean NOT NULL DEFAULT false,
    PRIMARY KEY (pipeline_id, row_key)
);
COMMENT ON TABLE embedsidecar.batch_item IS 'The rows of batch jobs. One goes when its task is done.';
COMMENT ON COLUMN embedsidecar.batch_item.released IS 'There is, or was, a task for it.';
CREATE INDEX batch_item_job_idx ON embedsidecar.batch_item (job_id, row_key);

CREATE TABLE embedsidecar.batch_text (
    job_id    bigint NOT NULL REFERENCES embedsidecar.batch_job ON DELETE CASCADE,
    text_hash bytea  NOT NULL,
    vector    bytea,
    PRIMARY KEY (job_id, text_hash)
);
COMMENT ON TABLE embedsidecar.batch_text IS
    'The hashes of the texts of batch jobs, and the vectors that the provider has made of them. No text is here.';
COMMENT ON COLUMN embedsidecar.batch_text.vector IS
    'Little-endian single precision numbers; of a sparse model pairs of them. NULL: there is none.';
ALTER TABLE embedsidecar.batch_text ALTER COLUMN vector SET STORAGE EXTERNAL;
