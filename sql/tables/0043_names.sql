-- These functions have other names now: set_enabled and switch_generation.
DROP FUNCTION IF EXISTS embedsidecar.switch, embedsidecar.take_place;
COMMENT ON COLUMN embedsidecar.pipeline.generation IS
    'Raised when texts may differ from those that the ledger was written for. What model_switch exchanges are rows of '
    'this table.';
