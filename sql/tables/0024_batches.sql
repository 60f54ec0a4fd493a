-- Batch jobs of providers, for backfills.

ALTER TABLE embedsidecar.pipeline ADD COLUMN batch jsonb;
COMMENT ON COLUMN embedsidecar.pipeline.batch IS
    'When its scans make batch jobs, and of how many rows: when, over. NULL: never.';

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

CREATE TABLE embedsidecar.batch_item (
    pipeline_id integer NOT NULL,
    row_key     text    COLLATE "C" NOT NULL,
    job_id      bigint  NOT NULL REFERENCES embedsidecar.batch_job ON DELETE CASCADE,
    released    boolean NOT NULL DEFAULT false,
    PRIMARY KEY (pipeline_id, row_key)
);
CREATE INDEX batch_item_job_idx ON embedsidecar.batch_item (job_id, row_key);
COMMENT ON TABLE embedsidecar.batch_item IS 'The rows of batch jobs. One goes when its task is done.';
COMMENT ON COLUMN embedsidecar.batch_item.released IS 'There is, or was, a task for it.';

CREATE TABLE embedsidecar.batch_text (
    job_id    bigint NOT NULL REFERENCES embedsidecar.batch_job ON DELETE CASCADE,
    text_hash bytea  NOT NULL,
    vector    bytea,
    PRIMARY KEY (job_id, text_hash)
);
ALTER TABLE embedsidecar.batch_text ALTER COLUMN vector SET STORAGE EXTERNAL;
COMMENT ON TABLE embedsidecar.batch_text IS
    'The hashes of the texts of batch jobs, and the vectors that the provider has made of them. No text is here.';
COMMENT ON COLUMN embedsidecar.batch_text.vector IS
    'Little-endian single precision numbers; of a sparse model pairs of them. NULL: there is none.';
