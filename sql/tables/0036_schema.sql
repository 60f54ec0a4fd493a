-- The tables of embedsidecar. They live in the database of the data, so that data, queue and checkpoint commit, restore
-- and fail over together. Files with later numbers alter those of databases that an older program has set up.

CREATE TABLE embedsidecar.installation (
    only_row        boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
    installation_id uuid        NOT NULL DEFAULT gen_random_uuid(),
    secret          bytea       NOT NULL,
    enabled         boolean     NOT NULL DEFAULT true,
    created_at      timestamptz NOT NULL DEFAULT now()
);

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
CREATE UNIQUE INDEX pipeline_beside_idx ON embedsidecar.pipeline (beside);

CREATE TABLE embedsidecar.route (
    pipeline_id integer     PRIMARY KEY REFERENCES embedsidecar.pipeline ON DELETE CASCADE,
    generation  integer     NOT NULL,
    definition  bytea       NOT NULL,
    epoch       bigint      NOT NULL,
    routed_at   timestamptz NOT NULL DEFAULT now()
);

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

CREATE TYPE embedsidecar.task_state AS ENUM ('todo', 'retrying', 'failed', 'cancelled');
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
CREATE INDEX audit_untold_idx ON embedsidecar.audit_log (audit_id) WHERE NOT told;
CREATE INDEX audit_open_idx ON embedsidecar.audit_log (audit_id) WHERE open;

CREATE UNLOGGED TABLE embedsidecar.answer (
    question bytea       PRIMARY KEY,
    vector   text,
    problem  text,
    made_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((vector IS NULL) <> (problem IS NULL))
);
CREATE INDEX answer_made_idx ON embedsidecar.answer (made_at);

CREATE TYPE embedsidecar.found_row AS (row_key text, key jsonb, distance double precision, chunk_no integer,
    chunk_text text);

-- Locked for as long as one init sets up, or one sidecar builds an index: they hold no rows.
CREATE TABLE embedsidecar.init_lock ();

CREATE TABLE embedsidecar.index_lock ();

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
CREATE INDEX request_waiting_idx ON embedsidecar.request (slot_name, request_id)
    WHERE state IN ('waiting', 'to_plan');

CREATE TABLE embedsidecar.declared (
    name       text   PRIMARY KEY,
    slot_name  name   NOT NULL,
    definition jsonb  NOT NULL,
    request_id bigint NOT NULL
);

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

CREATE TABLE embedsidecar.history_turn (
    only_row boolean       PRIMARY KEY DEFAULT true CHECK (only_row),
    bucket   smallint      NOT NULL DEFAULT 0,
    began_at timestamptz   NOT NULL DEFAULT now(),
    ended_at timestamptz[] NOT NULL DEFAULT array_fill(now(), ARRAY[8])
);
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
CREATE UNIQUE INDEX batch_job_gathering_idx ON embedsidecar.batch_job (pipeline_id) WHERE state = 'gathering';
CREATE INDEX batch_job_pipeline_idx ON embedsidecar.batch_job (pipeline_id);

CREATE TABLE embedsidecar.batch_item (
    pipeline_id integer NOT NULL,
    row_key     text    COLLATE "C" NOT NULL,
    job_id      bigint  NOT NULL REFERENCES embedsidecar.batch_job ON DELETE CASCADE,
    released    boolean NOT NULL DEFAULT false,
    PRIMARY KEY (pipeline_id, row_key)
);
CREATE INDEX batch_item_job_idx ON embedsidecar.batch_item (job_id, row_key);

CREATE TABLE embedsidecar.batch_text (
    job_id    bigint NOT NULL REFERENCES embedsidecar.batch_job ON DELETE CASCADE,
    text_hash bytea  NOT NULL,
    vector    bytea,
    PRIMARY KEY (job_id, text_hash)
);
ALTER TABLE embedsidecar.batch_text ALTER COLUMN vector SET STORAGE EXTERNAL;
