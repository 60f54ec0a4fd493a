-- switch_all: turn the switch that is over all pipelines on or off (@on).
-- Rows: none; one is changed unless it stood so. Locks: the row of the installation. Index: none, there is one row.
UPDATE embedsidecar.installation SET enabled = @on WHERE enabled <> @on;
