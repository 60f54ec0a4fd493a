-- What a second look at the first version asked for. Each section has its way back at the end.

-- What only a running sidecar knows is told by its row, written when it changes: status asks the tables alone.
ALTER TABLE embedsidecar.worker
    ADD COLUMN slot_name     name  NOT NULL DEFAULT '',
    ADD COLUMN session_name  text  NOT NULL DEFAULT '',
    ADD COLUMN stream        text  NOT NULL DEFAULT 'starting',
    ADD COLUMN stream_detail text  NOT NULL DEFAULT '',
    ADD COLUMN problems      jsonb NOT NULL DEFAULT '{}';
COMMENT ON COLUMN embedsidecar.worker.session_name IS 'application_name of its sessions: a worker without one has ended without a word.';
COMMENT ON COLUMN embedsidecar.worker.stream IS 'What it does about the slot: starting, streaming, standby, making (the slot), stuck or none.';
COMMENT ON COLUMN embedsidecar.worker.stream_detail IS 'Why its stream is not what it should be.';
COMMENT ON COLUMN embedsidecar.worker.problems IS 'Why it does not work a pipeline, by pipeline_id: code and detail.';

-- Rows a second and what is left of a scan; whether one has ever ended.
ALTER TABLE embedsidecar.scan ADD COLUMN started_at timestamptz;
COMMENT ON COLUMN embedsidecar.scan.started_at IS 'When the scan that runs, or ran last, began.';
COMMENT ON COLUMN embedsidecar.scan.finished_at IS 'When a scan last ended; NULL: none has, so this is the backfill.';

-- Which definition of each pipeline the streamer matches changes with.
CREATE TABLE embedsidecar.route (
    pipeline_id integer     PRIMARY KEY REFERENCES embedsidecar.pipeline ON DELETE CASCADE,
    generation  integer     NOT NULL,
    definition  bytea       NOT NULL,
    epoch       bigint      NOT NULL,
    routed_at   timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE embedsidecar.route IS 'What the streamer acknowledged: the definition of each pipeline that it matches changes with. No row, or one of another generation: changes may pass unseen, and nothing counts as caught up.';
COMMENT ON COLUMN embedsidecar.route.generation IS 'Of the pipeline, as the streamer knows it.';
COMMENT ON COLUMN embedsidecar.route.definition IS 'Digest of what the catalogue alone may change about the matching: table, watched columns, destination column.';
COMMENT ON COLUMN embedsidecar.route.epoch IS 'Of the slot, when it was written: of the streamer that said so.';
-- The roles that run a sidecar here already write it.
DO $$
DECLARE
    role text;
BEGIN
    FOR role IN SELECT DISTINCT a.grantee::regrole FROM pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS a
                WHERE c.oid = 'embedsidecar.lsn_checkpoint'::regclass AND a.privilege_type = 'UPDATE' AND a.grantee NOT IN (0, c.relowner) LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON embedsidecar.route TO %s', role);
    END LOOP;
END $$;

-- Leases are rows of their own, one for a batch: a task is not written when it is leased, extended, given back or taken over, and nobody who
-- writes back holds a task. What was leased when this ran is open again. A program of the version before gets no lease any more, and so
-- writes nothing; its stream goes on.
UPDATE embedsidecar.task SET state = 'todo' WHERE state = 'in_progress';
DROP INDEX embedsidecar.task_lease_idx, embedsidecar.task_due_idx;
ALTER TABLE embedsidecar.task
    DROP CONSTRAINT task_pipeline_id_fkey,
    DROP COLUMN lease_token, DROP COLUMN leased_by, DROP COLUMN leased_until,
    ADD COLUMN next_committed_at timestamptz,
    ADD COLUMN waits_since timestamptz,
    ADD CONSTRAINT task_state_check CHECK (state IN ('todo', 'retrying', 'failed'));
-- A value leaves an enum only by a new type, for which the table and each of its indexes would be written anew.
COMMENT ON TYPE embedsidecar.task_state IS 'What a task is stored as: todo, retrying or failed. Nothing is in_progress any more, leases are rows of their own; nothing is cancelled yet.';
ALTER TABLE embedsidecar.ledger DROP CONSTRAINT ledger_pipeline_id_fkey;
COMMENT ON COLUMN embedsidecar.task.pipeline_id IS 'Without a foreign key: who adds a task must not wait for who writes the pipeline, and a pipeline goes without its tasks, which follow in portions.';
COMMENT ON COLUMN embedsidecar.task.next_lsn IS 'No later than the oldest change that came after the lease, if there is one; it becomes first_lsn when the task stays open.';
COMMENT ON COLUMN embedsidecar.task.next_committed_at IS 'When that was committed.';
COMMENT ON COLUMN embedsidecar.task.waits_since IS 'While retrying: when the pause began. One that began in the future ends: the clock was set back.';
CREATE INDEX task_retry_idx ON embedsidecar.task (pipeline_id, lane, due_at) WHERE state = 'retrying';

ALTER TABLE embedsidecar.pipeline
    ADD COLUMN lease_epoch     bigint NOT NULL DEFAULT 0,
    ADD COLUMN tokens_embedded bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN embedsidecar.pipeline.lease_epoch IS 'Raised when what workers have read may be of rows that this server never had: leases of an older epoch hold nothing, and nothing is written under them.';
COMMENT ON COLUMN embedsidecar.pipeline.tokens_embedded IS 'Tokens that embedders saw for it, as far as they say how many; written once a minute and when a sidecar ends.';

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
COMMENT ON TABLE embedsidecar.lease IS 'Who works on which tasks: one row per batch, gone when the last of its tasks is finished.';
COMMENT ON COLUMN embedsidecar.lease.place IS 'In the order of the leases of a pipeline, so that whoever looks for those that live can leave out what is long over.';
COMMENT ON COLUMN embedsidecar.lease.token IS 'Chosen by the worker, who may never hear that he got the lease.';
COMMENT ON COLUMN embedsidecar.lease.epoch IS 'lease_epoch of the pipeline.';
COMMENT ON COLUMN embedsidecar.lease.timeline IS 'Of the server. A standby that was promoted has another one from its first moment on, and may lack what was read on the old one.';
CREATE TABLE embedsidecar.turn (
    pipeline_id integer PRIMARY KEY REFERENCES embedsidecar.pipeline ON DELETE CASCADE
);
COMMENT ON TABLE embedsidecar.turn IS 'Locked by who leases tasks of a pipeline, so that no two choose at the same moment.';
-- The roles that run a sidecar here already write all of these.
DO $$
DECLARE
    role text;
BEGIN
    FOR role IN SELECT DISTINCT a.grantee::regrole FROM pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS a
                WHERE c.oid = 'embedsidecar.task'::regclass AND a.privilege_type = 'UPDATE' AND a.grantee NOT IN (0, c.relowner) LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON embedsidecar.lease, embedsidecar.turn TO %s', role);
        EXECUTE format('GRANT UPDATE (generation, lease_epoch, tokens_embedded) ON embedsidecar.pipeline TO %s', role);
    END LOOP;
END $$;

-- Columns are followed through renames as tables are: by their number.
ALTER TABLE embedsidecar.pipeline ADD COLUMN column_numbers jsonb NOT NULL DEFAULT '{}';
COMMENT ON COLUMN embedsidecar.pipeline.column_numbers IS 'The numbers of the columns of table_oid by the names that they had whenever the pipeline was written down.';
UPDATE embedsidecar.pipeline AS p
SET    column_numbers = coalesce((SELECT jsonb_object_agg(a.attname, a.attnum) FROM pg_attribute AS a
                                  WHERE a.attrelid = p.table_oid AND a.attnum > 0 AND NOT a.attisdropped), '{}');

-- A function that is replaced changes texts, and nothing of that is in the WAL.
ALTER TABLE embedsidecar.pipeline ADD COLUMN functions text[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN embedsidecar.pipeline.functions IS 'Functions of the user''s that text, filter and context call, by their names.';

-- So is an embedding table, which may be renamed or move with its schema.
ALTER TABLE embedsidecar.pipeline ADD COLUMN destination_oid oid;
COMMENT ON COLUMN embedsidecar.pipeline.destination_oid IS 'The embedding table, as it was when the pipeline was written down: where none has its name any more it is found by this.';
UPDATE embedsidecar.pipeline AS p
SET    destination_oid = c.oid
FROM   pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE  n.nspname = p.destination_schema AND c.relname = p.destination_table;

-- A sidecar that starts with an older configuration must not turn a newer definition back.
ALTER TABLE embedsidecar.pipeline
    ADD COLUMN definition_version integer NOT NULL DEFAULT 1,
    ADD COLUMN definitions        jsonb   NOT NULL DEFAULT '{}';
COMMENT ON COLUMN embedsidecar.pipeline.definition_version IS 'Raised by each change of what is configured.';
COMMENT ON COLUMN embedsidecar.pipeline.definitions IS 'Digests of the definitions there were, each with the version at which it was applied last; at most 50.';
---- create above / drop below ----
ALTER TABLE embedsidecar.pipeline DROP COLUMN definitions, DROP COLUMN definition_version;
ALTER TABLE embedsidecar.pipeline DROP COLUMN destination_oid;
ALTER TABLE embedsidecar.pipeline DROP COLUMN functions;
ALTER TABLE embedsidecar.pipeline DROP COLUMN column_numbers;
DROP TABLE embedsidecar.turn, embedsidecar.lease;
ALTER TABLE embedsidecar.pipeline DROP COLUMN tokens_embedded, DROP COLUMN lease_epoch;
DROP INDEX embedsidecar.task_retry_idx;
DELETE FROM embedsidecar.task AS t WHERE NOT EXISTS (SELECT FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = t.pipeline_id);
DELETE FROM embedsidecar.ledger AS l WHERE NOT EXISTS (SELECT FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = l.pipeline_id);
ALTER TABLE embedsidecar.ledger ADD CONSTRAINT ledger_pipeline_id_fkey FOREIGN KEY (pipeline_id) REFERENCES embedsidecar.pipeline ON DELETE CASCADE;
ALTER TABLE embedsidecar.task
    DROP CONSTRAINT task_state_check, DROP COLUMN waits_since, DROP COLUMN next_committed_at,
    ADD COLUMN lease_token bigint, ADD COLUMN leased_by bigint, ADD COLUMN leased_until timestamptz,
    ADD CONSTRAINT task_pipeline_id_fkey FOREIGN KEY (pipeline_id) REFERENCES embedsidecar.pipeline ON DELETE CASCADE;
COMMENT ON TYPE embedsidecar.task_state IS NULL;
CREATE INDEX task_due_idx ON embedsidecar.task (due_at) WHERE state = 'retrying';
CREATE INDEX task_lease_idx ON embedsidecar.task (leased_until) WHERE state = 'in_progress';
DROP TABLE embedsidecar.route;
ALTER TABLE embedsidecar.scan DROP COLUMN started_at;
ALTER TABLE embedsidecar.worker DROP COLUMN problems, DROP COLUMN stream_detail, DROP COLUMN stream, DROP COLUMN session_name, DROP COLUMN slot_name;
