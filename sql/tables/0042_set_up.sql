-- A comparison that is requested later raises the barrier of the scan, which then no longer tells what was written
-- since the set-up.
ALTER TABLE embedsidecar.pipeline ADD COLUMN set_up pg_snapshot NOT NULL DEFAULT pg_current_snapshot();
