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
COMMENT ON COLUMN embedsidecar.generations.model IS 'What made its vectors, and embeds questions while it serves.';
COMMENT ON COLUMN embedsidecar.generations.plugin IS 'The program that runs the model.';
COMMENT ON COLUMN embedsidecar.generations.dims IS 'Width of its vectors.';
COMMENT ON COLUMN embedsidecar.generations.fingerprint IS
    'The embedder''s own name for everything that can change a vector.';
COMMENT ON COLUMN embedsidecar.generations.destination IS 'Where its vectors are now.';
COMMENT ON COLUMN embedsidecar.generations.state IS 'Where it stands: docs/states.md.';
COMMENT ON COLUMN embedsidecar.generations.reason IS 'Why, in a sentence.';
COMMENT ON COLUMN embedsidecar.generations.pending IS 'Rows that wait for it or are being embedded.';
COMMENT ON COLUMN embedsidecar.generations.failed IS 'Its dead letters.';
COMMENT ON COLUMN embedsidecar.generations.scan_phase IS 'Of its backfill: waiting, rows, orphans or done.';
COMMENT ON COLUMN embedsidecar.generations.scan_seen IS 'Rows that its backfill has looked at.';
COMMENT ON COLUMN embedsidecar.generations.scan_expected IS 'About how many there are.';
COMMENT ON COLUMN embedsidecar.generations.lacks IS 'Why it cannot serve yet; empty: it can. NULL: it does.';
COMMENT ON COLUMN embedsidecar.generations.wanted IS
    'The model that somebody asked for by SQL and no sidecar has made yet.';
COMMENT ON COLUMN embedsidecar.generations.problem IS 'Why not, as the last sidecar that tried says.';
COMMENT ON COLUMN embedsidecar.generations.hints IS 'What to do about its state; empty: nothing.';
COMMENT ON COLUMN embedsidecar.generations.bytes IS 'Size of its embedding table with its indexes; NULL: a column.';
COMMENT ON COLUMN embedsidecar.generations.differs IS
    'In what it differs from the one that serves: model, weights, text, chunking, type.';
COMMENT ON COLUMN embedsidecar.generations.overlap IS
    'Share of the first ten rows that it finds as the one that serves does, for switch: auto with a bound; NULL: it '
    'was not compared.';
COMMENT ON COLUMN embedsidecar.generations.overlap_least IS
    'What overlap must be for it to serve by itself.';
COMMENT ON COLUMN embedsidecar.generations.compared_at IS 'When it was compared.';
