CREATE OR REPLACE VIEW embedsidecar.row_state AS
SELECT p.name AS pipeline, l.row_key,
       CASE WHEN t.state IN ('failed', 'cancelled') THEN t.state::text
            WHEN length(l.vector_hash) = 0 THEN 'stale'
            WHEN l.skipped IS NOT NULL AND t.state IS NULL AND l.generation = p.generation THEN 'skipped'
            WHEN l.text_hash IS NULL OR l.vector_hash = '\x0000000000000000' THEN CASE WHEN t.state IS NULL
                AND l.generation = p.generation THEN 'no_text' ELSE 'pending' END
            WHEN t.state IS NULL AND l.generation = p.generation THEN 'embedded' ELSE 'stale' END AS state,
       l.written_at, t.committed_at AS changed_at
FROM   embedsidecar.ledger AS l JOIN embedsidecar.pipeline AS p ON p.pipeline_id = l.pipeline_id
       LEFT JOIN embedsidecar.task AS t ON t.row_key = l.row_key AND t.pipeline_id = l.pipeline_id
UNION ALL
SELECT p.name, t.row_key, CASE WHEN t.state IN ('failed', 'cancelled') THEN t.state::text
    ELSE 'pending' END, NULL, t.committed_at
FROM   embedsidecar.task AS t JOIN embedsidecar.pipeline AS p ON p.pipeline_id = t.pipeline_id
WHERE  NOT EXISTS (SELECT FROM embedsidecar.ledger AS l WHERE l.pipeline_id = t.pipeline_id AND l.row_key = t.row_key);
COMMENT ON VIEW embedsidecar.row_state IS
    'The state of every row that was ever processed or waits for it. A row that is missing here is new, or the '
    'backfill has not reached it. Join it with the key of a table as text, or with embedsidecar.row_key of several '
    'columns: docs/sql.md.';
COMMENT ON COLUMN embedsidecar.row_state.pipeline IS 'The pipeline''s name.';
COMMENT ON COLUMN embedsidecar.row_state.row_key IS
    'The row''s key as PostgreSQL prints it; for several columns, embedsidecar.row_key.';
COMMENT ON COLUMN embedsidecar.row_state.state IS
    'pending (waits, and has no vector), embedded, stale (waits, and its vector is of an older text or definition), '
    'failed (a dead letter), cancelled, skipped (its writer said that its text needs no new vector), or no_text '
    '(nothing to embed: the text is empty, or the filter leaves the row out).';
COMMENT ON COLUMN embedsidecar.row_state.written_at IS 'When the ledger was last written for it; NULL: never.';
COMMENT ON COLUMN embedsidecar.row_state.changed_at IS 'When the waiting change was committed; NULL: none waits.';
