-- What embedders did is counted in spent alone, and every sidecar knows generations.

ALTER TABLE embedsidecar.pipeline DROP COLUMN IF EXISTS tokens_embedded, DROP COLUMN IF EXISTS texts_embedded,
    DROP COLUMN IF EXISTS texts_reused, DROP COLUMN IF EXISTS rows_unchanged;
ALTER TABLE embedsidecar.worker DROP COLUMN IF EXISTS knows_generations;
