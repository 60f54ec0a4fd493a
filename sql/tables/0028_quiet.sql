-- A sidecar of many databases leaves quiet ones alone for a while: no session of it is there meanwhile.

ALTER TABLE embedsidecar.worker ADD COLUMN IF NOT EXISTS quiet_until timestamptz;
COMMENT ON COLUMN embedsidecar.worker.quiet_until IS
    'Nothing changed, so it has left; it is back by then, or as soon as something changes. NULL: it is there.';
