-- The tables of embedsidecar: pipelines, LSN checkpoint, tasks, ledger, scans, history, workers.
-- They live in the database of the data, so that data, queue and checkpoint commit, restore and fail over together.

CREATE TABLE embedsidecar.installation (
    only_row        boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
    installation_id uuid        NOT NULL DEFAULT gen_random_uuid(),
    mark_key        bytea       NOT NULL,
    enabled         boolean     NOT NULL DEFAULT true,
    created_at      timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE embedsidecar.installation IS 'One row: what holds for all pipelines of this database.';
COMMENT ON COLUMN embedsidecar.installation.mark_key IS 'Secret. Signs the marks of write-backs in the WAL, so that a forged mark hides nothing.';
COMMENT ON COLUMN embedsidecar.installation.enabled IS 'Master switch: false stops every lease. Changes are still queued, so nothing is lost.';

CREATE TABLE embedsidecar.lsn_checkpoint (
    slot_name        name        PRIMARY KEY,
    publication      name        NOT NULL,
    publication_oid  oid         NOT NULL,
    system_id        text        NOT NULL,
    timeline         integer     NOT NULL,
    consistent_point pg_lsn      NOT NULL,
    lsn              pg_lsn      NOT NULL,
    epoch            bigint      NOT NULL DEFAULT 0,
    created_at       timestamptz NOT NULL DEFAULT now(),
    saved_at         timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
COMMENT ON TABLE embedsidecar.lsn_checkpoint IS 'One row per slot: all changes before lsn are in the queue or done.';
COMMENT ON COLUMN embedsidecar.lsn_checkpoint.publication_oid IS 'A publication that was dropped and made again has another one: changes may have been missed between.';
COMMENT ON COLUMN embedsidecar.lsn_checkpoint.epoch IS 'Raised by each streamer that takes the slot; one with an older epoch cannot move the checkpoint.';

CREATE TABLE embedsidecar.pipeline (
    pipeline_id        integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name               text        NOT NULL UNIQUE,
    slot_name          name        NOT NULL REFERENCES embedsidecar.lsn_checkpoint,
    table_oid          oid         NOT NULL,
    table_schema       name        NOT NULL,
    table_name         name        NOT NULL,
    source_columns     name[]      NOT NULL,
    text_expression    text,
    filter_expression  text,
    key_columns        name[]      NOT NULL,
    watched_columns    name[],
    generated_columns  jsonb       NOT NULL DEFAULT '{}',
    destination_column name,
    destination_schema name,
    destination_table  name,
    dims               integer     NOT NULL CHECK (dims > 0),
    plugin             text        NOT NULL,
    model              text        NOT NULL,
    chunking           jsonb       NOT NULL DEFAULT '{}',
    generation         integer     NOT NULL DEFAULT 1,
    fingerprint        text        NOT NULL,
    lane               smallint    NOT NULL DEFAULT 1 CHECK (lane BETWEEN 0 AND 3),
    enabled            boolean     NOT NULL DEFAULT true,
    status             text        NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'missing', 'misconfigured', 'unpublished')),
    status_detail      text        NOT NULL DEFAULT '',
    catalogue          jsonb       NOT NULL DEFAULT '{}',
    created_at         timestamptz NOT NULL DEFAULT now(),
    CHECK ((destination_column IS NULL) <> (destination_table IS NULL))
);
COMMENT ON TABLE embedsidecar.pipeline IS 'One source table, its text, one model and one destination.';
COMMENT ON COLUMN embedsidecar.pipeline.watched_columns IS 'Columns other than the key that text and filter read; NULL: not known, every UPDATE counts as a change.';
COMMENT ON COLUMN embedsidecar.pipeline.generated_columns IS 'What columns the generated ones of the table were made of when it was found out what text and filter read.';
COMMENT ON COLUMN embedsidecar.pipeline.chunking IS 'How texts are cut into chunks: strategy, tokens, overlap, context. Empty: not at all.';
COMMENT ON COLUMN embedsidecar.pipeline.fingerprint IS 'What the vectors of this generation were made with; a worker whose embedder differs gets no lease.';
COMMENT ON COLUMN embedsidecar.pipeline.catalogue IS 'What the catalogue said of the table when the pipeline was last known to be whole: a difference asks for a scan.';

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
    finished_at   timestamptz
);
COMMENT ON TABLE embedsidecar.scan IS 'Backfill and reconcile of a pipeline: compare every row with the ledger, then every ledger entry with the rows.';
COMMENT ON COLUMN embedsidecar.scan.requested IS 'Raised by each request; a scan that ends with started < requested begins again.';
COMMENT ON COLUMN embedsidecar.scan.barrier IS 'The scan starts when every transaction before this one has ended and is visible.';
COMMENT ON COLUMN embedsidecar.scan.after_key IS 'The last row_key of the current phase that is done.';

CREATE TYPE embedsidecar.task_state AS ENUM ('todo', 'in_progress', 'retrying', 'failed', 'cancelled');
CREATE SEQUENCE embedsidecar.task_seq AS bigint CACHE 1;

CREATE TABLE embedsidecar.task (
    task_id       bigint      GENERATED ALWAYS AS IDENTITY,
    pipeline_id   integer     NOT NULL REFERENCES embedsidecar.pipeline ON DELETE CASCADE,
    row_key       text        COLLATE "C" NOT NULL,
    state         embedsidecar.task_state NOT NULL DEFAULT 'todo',
    lane          smallint    NOT NULL,
    seq           bigint      NOT NULL DEFAULT nextval('embedsidecar.task_seq'),
    gen           bigint      NOT NULL DEFAULT 1,
    xid           xid8        NOT NULL,
    first_lsn     pg_lsn      NOT NULL,
    last_lsn      pg_lsn      NOT NULL,
    committed_at  timestamptz NOT NULL,
    next_lsn      pg_lsn,
    attempt       smallint    NOT NULL DEFAULT 0,
    losses        smallint    NOT NULL DEFAULT 0,
    lost_leases   smallint    NOT NULL DEFAULT 0,
    due_at        timestamptz,
    lease_token   bigint,
    leased_by     bigint,
    leased_until  timestamptz,
    error_class   text,
    error_code    text,
    error_message text,
    enqueued_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (task_id),
    UNIQUE (row_key, pipeline_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.05);
COMMENT ON TABLE embedsidecar.task IS 'Look at this row: at most one per pipeline and key. A task never holds text or a vector.';
-- The unique key begins with row_key on purpose: with old statistics a planner may think a pipeline has one task, and would then
-- claim by an index that begins with pipeline_id, reading all of a million tasks for each claim.
COMMENT ON COLUMN embedsidecar.task.row_key IS 'The key as Postgres prints it; several columns are joined by | with \ and | escaped by \.';
COMMENT ON COLUMN embedsidecar.task.seq IS 'Place in the queue of its lane; a new one each time the task becomes due again.';
COMMENT ON COLUMN embedsidecar.task.gen IS 'Raised by every change of the row; a worker that finishes with an older one must look again.';
COMMENT ON COLUMN embedsidecar.task.xid IS 'The last transaction that changed the row: no lease before it is visible.';
COMMENT ON COLUMN embedsidecar.task.first_lsn IS 'The oldest change not yet satisfied.';
COMMENT ON COLUMN embedsidecar.task.next_lsn IS 'While in progress: the oldest change that came after the lease; it becomes first_lsn when the task is opened again.';
COMMENT ON COLUMN embedsidecar.task.losses IS 'Leases in which the embedder died, or that were lost (these up to 2); from 2 on the row is tried alone, after 3 more it is a dead letter.';
COMMENT ON COLUMN embedsidecar.task.lost_leases IS 'Leases that were lost with their worker, whoever was to blame; after 20 in a row the row is a dead letter.';
CREATE INDEX task_todo_idx ON embedsidecar.task (pipeline_id, lane, seq) WHERE state = 'todo';
CREATE INDEX task_alone_idx ON embedsidecar.task (pipeline_id, seq) WHERE state = 'todo' AND losses >= 2;
CREATE INDEX task_due_idx ON embedsidecar.task (due_at) WHERE state = 'retrying';
CREATE INDEX task_lease_idx ON embedsidecar.task (leased_until) WHERE state = 'in_progress';
CREATE INDEX task_failed_idx ON embedsidecar.task (pipeline_id) WHERE state = 'failed';

CREATE TABLE embedsidecar.ledger (
    pipeline_id integer     NOT NULL REFERENCES embedsidecar.pipeline ON DELETE CASCADE,
    row_key     text        COLLATE "C" NOT NULL,
    source_hash bytea       NOT NULL,
    text_hash   bytea,
    vector_hash bytea       NOT NULL,
    generation  integer     NOT NULL,
    lsn         pg_lsn      NOT NULL,
    written_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline_id, row_key)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
COMMENT ON TABLE embedsidecar.ledger IS 'What was last written for each row, so that a change that changes nothing costs nothing.';
COMMENT ON COLUMN embedsidecar.ledger.source_hash IS '16 bytes per watched column: the start of the SHA-256 of its output text.';
COMMENT ON COLUMN embedsidecar.ledger.text_hash IS 'SHA-256 of the text (with chunks: of settings, context and text); NULL: no text (empty, or excluded by the filter), so no vector.';
COMMENT ON COLUMN embedsidecar.ledger.vector_hash IS '8 bytes of the SHA-256 of the vector as little-endian float32 (with chunks: of their text hashes in order); eight zero bytes: no vector.';
CREATE INDEX ledger_text_idx ON embedsidecar.ledger (text_hash) WHERE text_hash IS NOT NULL;

-- A ring of partitions: pruning is TRUNCATE of the oldest, which a role may be granted, while dropping one needs its owner.
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
    error_code   text
) PARTITION BY LIST (bucket);
COMMENT ON TABLE embedsidecar.history IS 'What happened to each row of late: one entry per finished look, kept for 24 hours.';
DO $$
BEGIN
    FOR i IN 0..7 LOOP
        EXECUTE format('CREATE TABLE embedsidecar.history_%s PARTITION OF embedsidecar.history FOR VALUES IN (%s)', i, i);
        EXECUTE format('CREATE INDEX ON embedsidecar.history_%s (pipeline_id, row_key)', i);
    END LOOP;
END $$;

CREATE TABLE embedsidecar.worker (
    worker_id    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instance     text        NOT NULL,
    version      text        NOT NULL,
    started_at   timestamptz NOT NULL DEFAULT now(),
    last_seen_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
COMMENT ON TABLE embedsidecar.worker IS 'Sidecars that work this queue; one not seen for a while is dead and its leases run out.';
---- create above / drop below ----
DROP TABLE embedsidecar.worker, embedsidecar.history, embedsidecar.ledger, embedsidecar.task, embedsidecar.scan,
    embedsidecar.pipeline, embedsidecar.lsn_checkpoint, embedsidecar.installation;
DROP SEQUENCE embedsidecar.task_seq;
DROP TYPE embedsidecar.task_state;
