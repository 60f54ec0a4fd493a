ALTER TABLE embedsidecar.request ADD COLUMN counted_at timestamptz;
