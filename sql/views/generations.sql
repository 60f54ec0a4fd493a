CREATE OR REPLACE VIEW embedsidecar.generations AS
SELECT g.pipeline, g.role, g.pipeline_id, g.model, g.plugin, g.dims, g.fingerprint, g.destination, g.state, g.reason,
    g.hints, g.pending, g.failed, g.scan_phase, g.scan_seen, g.scan_expected, g.lacks, g.bytes, g.wanted, g.problem,
    g.differs, g.overlap, g.overlap_least, g.compared_at
FROM   embedsidecar.generation_states() AS g;
COMMENT ON VIEW embedsidecar.generations IS
    'The generations of each pipeline: the one that serves, and the next or the previous one beside it.';
COMMENT ON COLUMN embedsidecar.generations.pipeline IS 'The pipeline''s name.';
COMMENT ON COLUMN embedsidecar.generations.role IS 'serves, next or previous.';
COMMENT ON COLUMN embedsidecar.generations.pipeline_id IS 'Its number, which a switch does not change.';
COMMENT ON COLUMN embedsidecar.generations.model IS
    'The model that made its vectors, and embeds queries while it serves.';
COMMENT ON COLUMN embedsidecar.generations.plugin IS 'The program that runs the model.';
COMMENT ON COLUMN embedsidecar.generations.dims IS 'Width of its vectors.';
COMMENT ON COLUMN embedsidecar.generations.fingerprint IS
    'The embedder''s identifier of everything that can change a vector.';
COMMENT ON COLUMN embedsidecar.generations.destination IS 'Where its vectors are now.';
COMMENT ON COLUMN embedsidecar.generations.state IS 'Its state: docs/states.md.';
COMMENT ON COLUMN embedsidecar.generations.reason IS 'The reason, in one sentence.';
COMMENT ON COLUMN embedsidecar.generations.pending IS 'Rows that wait for it or are being embedded.';
COMMENT ON COLUMN embedsidecar.generations.failed IS 'Its dead letters.';
COMMENT ON COLUMN embedsidecar.generations.scan_phase IS 'The phase of its backfill: waiting, rows, orphans or done.';
COMMENT ON COLUMN embedsidecar.generations.scan_seen IS 'Rows that its backfill has compared.';
COMMENT ON COLUMN embedsidecar.generations.scan_expected IS 'Rows that its backfill expects, about.';
COMMENT ON COLUMN embedsidecar.generations.lacks IS 'Why it cannot serve yet; empty: it can. NULL: it serves.';
COMMENT ON COLUMN embedsidecar.generations.wanted IS
    'A model that was requested by SQL and that no sidecar has made yet.';
COMMENT ON COLUMN embedsidecar.generations.problem IS 'Why it was not made, as the last sidecar that tried reported.';
COMMENT ON COLUMN embedsidecar.generations.hints IS 'What to do about its state; empty: nothing.';
COMMENT ON COLUMN embedsidecar.generations.bytes IS 'Size of its embedding table with its indexes; NULL: a column.';
COMMENT ON COLUMN embedsidecar.generations.differs IS
    'How it differs from the generation that serves: model, weights, text, chunking, type.';
COMMENT ON COLUMN embedsidecar.generations.overlap IS
    'Share of the first ten rows that it has in common with the generation that serves, for switch: auto with a '
    'bound; NULL: not compared.';
COMMENT ON COLUMN embedsidecar.generations.overlap_least IS 'The overlap from which on it serves by itself.';
COMMENT ON COLUMN embedsidecar.generations.compared_at IS 'When it was compared.';
