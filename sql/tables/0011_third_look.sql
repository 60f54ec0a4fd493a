-- What a third look at the engine asked for.

-- Locked for as long as one init sets up, or one sidecar builds an index: they hold no rows.
CREATE TABLE embedsidecar.init_lock ();
CREATE TABLE embedsidecar.index_lock ();
COMMENT ON TABLE embedsidecar.init_lock IS 'Locked while an init runs, so that another does not.';
ALTER TABLE embedsidecar.scan ADD COLUMN gap boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN embedsidecar.scan.gap IS 'Changes may have been missed since the last comparison ended.';
COMMENT ON TABLE embedsidecar.index_lock IS 'Locked while a sidecar builds an index, so that another does not.';
