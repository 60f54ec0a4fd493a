-- What a third look at the engine asked for.

-- Locked for as long as one init sets up, or one sidecar builds an index: they hold no rows.
CREATE TABLE embedsidecar.init_lock ();
CREATE TABLE embedsidecar.index_lock ();
COMMENT ON TABLE embedsidecar.init_lock IS 'Locked while an init runs, so that another does not.';
COMMENT ON TABLE embedsidecar.index_lock IS 'Locked while a sidecar builds an index, so that another does not.';

ALTER TABLE embedsidecar.scan ADD COLUMN gap boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN embedsidecar.scan.gap IS 'Changes may have been missed since the last comparison ended.';

-- A row of its own: that of the pipeline would be another version each minute, and another version asks every sidecar to load its pipelines.
CREATE TABLE embedsidecar.spent (
    pipeline_id     integer PRIMARY KEY REFERENCES embedsidecar.pipeline ON UPDATE CASCADE ON DELETE CASCADE,
    tokens_embedded bigint  NOT NULL DEFAULT 0,
    texts_embedded  bigint  NOT NULL DEFAULT 0,
    texts_reused    bigint  NOT NULL DEFAULT 0,
    rows_unchanged  bigint  NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
COMMENT ON TABLE embedsidecar.spent IS 'What pipelines have cost, beside what the columns of the same names in pipeline say, which older programs write; written once a minute and when a sidecar ends.';
