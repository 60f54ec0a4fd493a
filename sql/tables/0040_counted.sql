ALTER TABLE embedsidecar.request ADD COLUMN counted_at timestamptz;
COMMENT ON COLUMN embedsidecar.request.tries IS
    'How often it was begun; what was begun again within 30 seconds counts once.';
COMMENT ON COLUMN embedsidecar.request.counted_at IS 'When the last of its tries that counts began.';
