-- What may be spent on tokens.

ALTER TABLE embedsidecar.pipeline ADD COLUMN budget jsonb, ADD COLUMN model_budget jsonb;
COMMENT ON COLUMN embedsidecar.pipeline.budget IS
    'What it may spend: tokens, money, tokens_per_day, money_per_day, and the time zone of the day. NULL: no limit.';
COMMENT ON COLUMN embedsidecar.pipeline.model_budget IS
    'What all pipelines with its model may spend together, in the same form. NULL: no limit.';

ALTER TABLE embedsidecar.spent ADD COLUMN search_tokens bigint NOT NULL DEFAULT 0,
    ADD COLUMN search_price double precision NOT NULL DEFAULT 0;
COMMENT ON COLUMN embedsidecar.spent.search_tokens IS
    'Tokens of searches: of questions, and of texts that rerankers scored, about. Those of rows are not among them.';
COMMENT ON COLUMN embedsidecar.spent.search_price IS 'Of these, by the prices of the models then.';
COMMENT ON COLUMN embedsidecar.measure.price IS
    'Of the tokens of rows and searches, by the prices of the models then; 0: they have none.';

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
