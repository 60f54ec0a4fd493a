-- Takes the schema embedsidecar back to version 10, with what is in its tables, as a database that a program of that
-- version set up: whatever later files of sql/tables add goes, functions and views that read it with it. What is set
-- aside goes back to the queue before its table goes: changes would be lost with it.
LOCK TABLE embedsidecar.aside;
DO $$ BEGIN
    IF EXISTS (SELECT FROM embedsidecar.aside) THEN
        RAISE 'changes are set aside' USING ERRCODE = 'object_in_use';
    END IF;
END $$;
DROP TABLE IF EXISTS embedsidecar.kept_ledger;
DROP TABLE IF EXISTS embedsidecar.spent, embedsidecar.measure;
ALTER TABLE embedsidecar.turn DROP COLUMN passed, DROP COLUMN passable, DROP COLUMN top, DROP COLUMN writers,
    DROP COLUMN live;
ALTER TABLE embedsidecar.audit_log DROP COLUMN told;
DROP TABLE embedsidecar.aside;
ALTER TABLE embedsidecar.turn RESET (fillfactor);
ALTER TABLE IF EXISTS embedsidecar.spent DROP COLUMN IF EXISTS texts_cut,
    DROP COLUMN IF EXISTS search_tokens, DROP COLUMN IF EXISTS search_price;
DROP VIEW IF EXISTS embedsidecar.indexes;
UPDATE embedsidecar.schema_version SET version = 10;
DROP TABLE IF EXISTS embedsidecar.init_lock, embedsidecar.index_lock;
ALTER TABLE embedsidecar.scan DROP COLUMN IF EXISTS gap;
ALTER TABLE embedsidecar.scan DROP partitions, DROP lost, DROP owners;
ALTER TABLE embedsidecar.pipeline DROP COLUMN joins CASCADE, DROP COLUMN joined_text CASCADE;
DROP INDEX embedsidecar.task_code_idx;
ALTER TABLE embedsidecar.task DROP COLUMN IF EXISTS seen;
ALTER TABLE embedsidecar.ledger DROP COLUMN IF EXISTS skipped CASCADE;
ALTER TABLE embedsidecar.ledger DROP COLUMN IF EXISTS norm_hash CASCADE, DROP COLUMN IF EXISTS ignored CASCADE;
ALTER TABLE embedsidecar.pipeline DROP COLUMN IF EXISTS ignore_expression CASCADE;
ALTER TABLE embedsidecar.lsn_checkpoint DROP COLUMN IF EXISTS hints_ignored CASCADE;
ALTER TABLE embedsidecar.pipeline DROP COLUMN IF EXISTS priority_expression CASCADE;
DROP VIEW IF EXISTS embedsidecar.generations;
-- beside stays, empty: views read it.
DELETE FROM embedsidecar.pipeline WHERE beside IS NOT NULL;
DROP INDEX embedsidecar.pipeline_beside_idx;
ALTER TABLE embedsidecar.pipeline DROP COLUMN served, DROP COLUMN switches,
    DROP COLUMN wish, DROP COLUMN IF EXISTS compared;
ALTER TABLE embedsidecar.worker DROP COLUMN knows_generations;
DROP TABLE IF EXISTS embedsidecar.configured CASCADE;
ALTER TABLE embedsidecar.pipeline DROP COLUMN origin CASCADE;
DROP TABLE IF EXISTS embedsidecar.spending, embedsidecar.hold;
ALTER TABLE embedsidecar.pipeline DROP COLUMN IF EXISTS budget CASCADE, DROP COLUMN IF EXISTS model_budget CASCADE;
DROP TABLE IF EXISTS embedsidecar.request, embedsidecar.declared CASCADE;
ALTER TABLE embedsidecar.task DROP CONSTRAINT IF EXISTS task_attempt_check;
DROP TRIGGER IF EXISTS job_moves ON embedsidecar.scan;
DROP TRIGGER IF EXISTS job_breaks_off ON embedsidecar.scan;
DROP TABLE IF EXISTS embedsidecar.history_turn;
DROP VIEW IF EXISTS embedsidecar.finished_tasks;
ALTER TABLE embedsidecar.history DROP COLUMN IF EXISTS created_at, DROP COLUMN IF EXISTS scheduled_at;
-- started_at and finished_at of task and lease stay: views read them.
ALTER TABLE embedsidecar.audit_log DROP COLUMN IF EXISTS open CASCADE;
ALTER TABLE embedsidecar.scan DROP COLUMN IF EXISTS asked;
ALTER TABLE embedsidecar.pipeline DROP COLUMN IF EXISTS max_attempts CASCADE, DROP COLUMN IF EXISTS batch CASCADE;
-- labels stay: views read them.
DROP TABLE IF EXISTS embedsidecar.batch_text, embedsidecar.batch_item, embedsidecar.batch_job;
