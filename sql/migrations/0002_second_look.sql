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
---- create above / drop below ----
DROP TABLE embedsidecar.route;
ALTER TABLE embedsidecar.scan DROP COLUMN started_at;
ALTER TABLE embedsidecar.worker DROP COLUMN problems, DROP COLUMN stream_detail, DROP COLUMN stream, DROP COLUMN session_name, DROP COLUMN slot_name;
