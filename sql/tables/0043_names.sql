-- These functions have other names now: set_enabled and switch_generation.
DROP FUNCTION IF EXISTS embedsidecar.switch, embedsidecar.take_place;
