-- A model is changed in place: a pipeline may have another generation beside the one that serves. Each generation has a
-- row, a ledger, tasks and scans of its own, so that the same program keeps both true. A switch exchanges the names of
-- their destinations and rows, never their numbers: whoever knows a generation by its number knows its model.

ALTER TABLE embedsidecar.pipeline
    ADD COLUMN IF NOT EXISTS beside integer REFERENCES embedsidecar.pipeline ON DELETE CASCADE,
    ADD COLUMN served boolean NOT NULL DEFAULT true,
    ADD COLUMN switches bigint NOT NULL DEFAULT 0,
    ADD COLUMN wish jsonb;
CREATE UNIQUE INDEX pipeline_beside_idx ON embedsidecar.pipeline (beside);
COMMENT ON COLUMN embedsidecar.pipeline.beside IS
    'The pipeline whose other generation this is: nobody searches it. NULL: it serves.';
COMMENT ON COLUMN embedsidecar.pipeline.served IS
    'It serves, or it was the last to do so. false: it is the next generation.';
COMMENT ON COLUMN embedsidecar.pipeline.switches IS 'How often it has begun or ended to serve.';
COMMENT ON COLUMN embedsidecar.pipeline.wish IS
    'The model that somebody asked for by SQL, until a sidecar has made the next generation, and why it has not.';

-- One of before writes into a column by its name alone, whatever that means by then.
ALTER TABLE embedsidecar.worker ADD COLUMN knows_generations boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN embedsidecar.worker.knows_generations IS
    'It makes sure that a destination is the one it knows before it writes.';
