-- What a second look at the first version asked for. Each section has its way back at the end.

-- What only a running sidecar knows is told by its row, written when it changes: status asks the tables alone.
ALTER TABLE embedsidecar.worker
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
---- create above / drop below ----
ALTER TABLE embedsidecar.scan DROP COLUMN started_at;
ALTER TABLE embedsidecar.worker DROP COLUMN problems, DROP COLUMN stream_detail, DROP COLUMN stream, DROP COLUMN session_name;
