-- A comparison that is requested later raises the barrier of the scan, which then no longer tells what was written
-- since the set-up.
ALTER TABLE embedsidecar.pipeline ADD COLUMN set_up pg_snapshot NOT NULL DEFAULT pg_current_snapshot();
COMMENT ON COLUMN embedsidecar.pipeline.set_up IS
    'The transactions that had ended when the pipeline was set up. A row that another one has written may have changed '
    'since: its vector is not adopted.';
