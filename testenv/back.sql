-- Reverts the schema embedsidecar to version 36 and keeps the data: drops what later files of sql/tables add, and
-- restores what they drop.
UPDATE embedsidecar.schema_version SET version = 36;
DROP TABLE embedsidecar.kept_ledger;
DROP INDEX embedsidecar.task_code_idx;
ALTER TABLE embedsidecar.pipeline ADD COLUMN tokens_embedded bigint NOT NULL DEFAULT 0,
    ADD COLUMN texts_embedded bigint NOT NULL DEFAULT 0, ADD COLUMN texts_reused bigint NOT NULL DEFAULT 0,
    ADD COLUMN rows_unchanged bigint NOT NULL DEFAULT 0;
ALTER TABLE embedsidecar.worker ADD COLUMN knows_generations boolean NOT NULL DEFAULT false;
ALTER TABLE embedsidecar.request DROP COLUMN counted_at;
ALTER TABLE embedsidecar.pipeline DROP COLUMN set_up, DROP COLUMN adopting;
