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
COMMENT ON COLUMN embedsidecar.measure.price IS 'Of the tokens, by the price of the model then; 0: it has none.';
COMMENT ON COLUMN embedsidecar.measure.backlog IS
    'Rows that waited at the end of a minute, up to about a million for each pipeline: the most of them.';
COMMENT ON COLUMN embedsidecar.measure.freshness IS
    'How many rows took how long from the commit to the vector: up to a millisecond, and up to the square root of two '
    'times the one before.';
