-- The tables of embedsidecar. They live in the database of the data, so that data, queue and checkpoint commit, restore
-- and fail over together. Versions 1 to 9 were those of programs before the first release.

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
    changes_joined    bigint      NOT NULL DEFAULT 0
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

CREATE TABLE embedsidecar.pipeline (
    pipeline_id        integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name               text        NOT NULL UNIQUE,
    slot_name          name        NOT NULL REFERENCES embedsidecar.lsn_checkpoint,
    table_oid          oid         NOT NULL,
    table_schema       name        NOT NULL,
    table_name         name        NOT NULL,
    column_numbers     jsonb       NOT NULL DEFAULT '{}',
    source_columns     name[]      NOT NULL,
    text_expression    text,
    filter_expression  text,
    functions          text[]      NOT NULL DEFAULT '{}',
    key_columns        name[]      NOT NULL,
    watched_columns    name[],
    generated_columns  jsonb       NOT NULL DEFAULT '{}',
    destination_column name,
    destination_schema name,
    destination_table  name,
    destination_oid    oid,
    dims               integer     NOT NULL CHECK (dims > 0),
    plugin             text        NOT NULL,
    model              text        NOT NULL,
    chunking           jsonb       NOT NULL DEFAULT '{}',
    generation         integer     NOT NULL DEFAULT 1,
    definition_version integer     NOT NULL DEFAULT 1,
    definitions        jsonb       NOT NULL DEFAULT '{}',
    fingerprint        text        NOT NULL,
    lane               smallint    NOT NULL DEFAULT 1 CHECK (lane BETWEEN 0 AND 3),
    enabled            boolean     NOT NULL DEFAULT true,
    active_hours       text        NOT NULL DEFAULT '',
    active_minutes     int4multirange,
    active_zone        text        NOT NULL DEFAULT 'UTC',
    open_until         timestamptz,
    status             text        NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'missing', 'misconfigured',
        'unpublished')),
    status_detail      text        NOT NULL DEFAULT '',
    catalogue          jsonb       NOT NULL DEFAULT '{}',
    lease_epoch        bigint      NOT NULL DEFAULT 0,
    tokens_embedded    bigint      NOT NULL DEFAULT 0,
    texts_embedded     bigint      NOT NULL DEFAULT 0,
    texts_reused       bigint      NOT NULL DEFAULT 0,
    rows_unchanged     bigint      NOT NULL DEFAULT 0,
    created_at         timestamptz NOT NULL DEFAULT now(),
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
COMMENT ON COLUMN embedsidecar.pipeline.tokens_embedded IS
    'Tokens that embedders saw for it, as far as they say how many; written once a minute and when a sidecar ends.';
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
COMMENT ON COLUMN embedsidecar.pipeline.texts_embedded IS
    'Texts of its rows, or of their chunks, that an embedder was asked for; this and the next two are written once a '
    'minute and when a sidecar ends.';
COMMENT ON COLUMN embedsidecar.pipeline.texts_reused IS 'Texts that had a vector already.';
COMMENT ON COLUMN embedsidecar.pipeline.rows_unchanged IS 'Rows that were looked at and needed nothing.';

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
    finished_at   timestamptz
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

CREATE TYPE embedsidecar.task_state AS ENUM ('todo', 'retrying', 'failed', 'cancelled');
COMMENT ON TYPE embedsidecar.task_state IS
    'What a task is stored as. That one is in progress its lease says, which is a row of its own.';
CREATE SEQUENCE embedsidecar.task_seq AS bigint CACHE 1;

CREATE TABLE embedsidecar.task (
    task_id           bigint      GENERATED ALWAYS AS IDENTITY,
    pipeline_id       integer     NOT NULL,
    row_key           text        COLLATE "C" NOT NULL,
    state             embedsidecar.task_state NOT NULL DEFAULT 'todo',
    lane              smallint    NOT NULL,
    seq               bigint      NOT NULL DEFAULT nextval('embedsidecar.task_seq'),
    gen               bigint      NOT NULL DEFAULT 1,
    xid               xid8        NOT NULL,
    first_lsn         pg_lsn      NOT NULL,
    last_lsn          pg_lsn      NOT NULL,
    committed_at      timestamptz NOT NULL,
    next_lsn          pg_lsn,
    next_committed_at timestamptz,
    attempt           smallint    NOT NULL DEFAULT 0,
    losses            smallint    NOT NULL DEFAULT 0,
    lost_leases       smallint    NOT NULL DEFAULT 0,
    due_at            timestamptz,
    waits_since       timestamptz,
    error_class       text,
    error_code        text,
    error_message     text,
    enqueued_at       timestamptz NOT NULL DEFAULT now(),
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
CREATE INDEX task_todo_idx ON embedsidecar.task (pipeline_id, lane, seq) WHERE state = 'todo';
CREATE INDEX task_alone_idx ON embedsidecar.task (pipeline_id, seq) WHERE state = 'todo' AND losses >= 2;
CREATE INDEX task_retry_idx ON embedsidecar.task (pipeline_id, lane, due_at) WHERE state = 'retrying';
CREATE INDEX task_failed_idx ON embedsidecar.task (pipeline_id) WHERE state = 'failed';
CREATE INDEX task_cancelled_idx ON embedsidecar.task (pipeline_id) WHERE state = 'cancelled';

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
    PRIMARY KEY (pipeline_id, place)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE embedsidecar.lease IS
    'Who works on which tasks: one row per batch, gone when the last of its tasks is finished.';
COMMENT ON COLUMN embedsidecar.lease.place IS
    'In the order of the leases of a pipeline, so that whoever looks for those that live can leave out what is '
        'long '
    'over.';
COMMENT ON COLUMN embedsidecar.lease.token IS 'Chosen by the worker, who may never hear that he got the lease.';
COMMENT ON COLUMN embedsidecar.lease.epoch IS 'lease_epoch of the pipeline.';
COMMENT ON COLUMN embedsidecar.lease.timeline IS
    'Of the server. A standby that was promoted has another one from its first moment on, and may lack what was read '
    'on the old one.';

CREATE TABLE embedsidecar.turn (
    pipeline_id integer PRIMARY KEY REFERENCES embedsidecar.pipeline ON DELETE CASCADE
);
COMMENT ON TABLE embedsidecar.turn IS
    'Locked by who leases tasks of a pipeline, so that no two choose at the same moment.';

CREATE TABLE embedsidecar.ledger (
    pipeline_id integer     NOT NULL,
    row_key     text        COLLATE "C" NOT NULL,
    source_hash bytea       NOT NULL,
    text_hash   bytea,
    vector_hash bytea       NOT NULL,
    generation  integer     NOT NULL,
    lsn         pg_lsn      NOT NULL,
    written_at  timestamptz NOT NULL DEFAULT now(),
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
    generation   integer
) PARTITION BY LIST (bucket);
COMMENT ON TABLE embedsidecar.history IS
    'What happened to each row recently: one entry per finished look, kept for 24 hours.';
COMMENT ON COLUMN embedsidecar.history.took_ms IS
    'From lease to end of its batch, in milliseconds; NULL: an older program wrote it.';
COMMENT ON COLUMN embedsidecar.history.generation IS
    'Of the pipeline: what the vector was made with; NULL: as above, or it was not asked.';
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
    worker_id     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instance      text        NOT NULL,
    version       text        NOT NULL,
    started_at    timestamptz NOT NULL DEFAULT now(),
    last_seen_at  timestamptz NOT NULL DEFAULT now(),
    slot_name     name        NOT NULL DEFAULT '',
    session_name  text        NOT NULL DEFAULT '',
    stream        text        NOT NULL DEFAULT 'starting',
    stream_detail text        NOT NULL DEFAULT '',
    problems      jsonb       NOT NULL DEFAULT '{}',
    succeeded_24h bigint      NOT NULL DEFAULT 0,
    failed_24h    bigint      NOT NULL DEFAULT 0,
    last_batch_at timestamptz,
    role          text        NOT NULL DEFAULT '',
    host          text        NOT NULL DEFAULT '',
    speeds        jsonb       NOT NULL DEFAULT '{}'
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
    after_key   text        COLLATE "C" NOT NULL DEFAULT ''
);
COMMENT ON TABLE embedsidecar.audit_log IS
    'Who had what done to which pipeline, the newest 100,000 entries. An action that is done in portions has one.';
COMMENT ON COLUMN embedsidecar.audit_log.said_by IS
    'Who the program that acted says it was asked by; no one proves it.';
COMMENT ON COLUMN embedsidecar.audit_log.pipeline IS 'Its name; NULL: all of them.';
COMMENT ON COLUMN embedsidecar.audit_log.finished_at IS 'When the last portion so far was done.';
COMMENT ON COLUMN embedsidecar.audit_log.place IS
    'Of the queue when the action began: what got a place since is left alone by its further portions.';
COMMENT ON COLUMN embedsidecar.audit_log.after_key IS 'Where the next portion begins.';

CREATE UNLOGGED TABLE embedsidecar.answer (
    question bytea       PRIMARY KEY,
    vector   text,
    problem  text,
    made_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((vector IS NULL) <> (problem IS NULL))
);
COMMENT ON TABLE embedsidecar.answer IS
    'Vectors of texts that someone has asked for, for a minute or two. No text is here. A crash of the server '
    'empties it.';
COMMENT ON COLUMN embedsidecar.answer.question IS 'SHA-256 of pipeline, role and text.';
COMMENT ON COLUMN embedsidecar.answer.vector IS 'As the pipeline''s model made it, as pgvector reads it.';
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
