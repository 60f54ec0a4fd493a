-- What a third look at the engine asked for.

-- Locked for as long as one init sets up, or one sidecar builds an index: they hold no rows.
CREATE TABLE embedsidecar.init_lock ();
CREATE TABLE embedsidecar.index_lock ();
COMMENT ON TABLE embedsidecar.init_lock IS 'Locked while an init runs, so that another does not.';
COMMENT ON TABLE embedsidecar.index_lock IS 'Locked while a sidecar builds an index, so that another does not.';
