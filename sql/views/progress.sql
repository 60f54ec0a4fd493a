-- A waiting scan has read nothing yet: it must not show the figures of the previous scan.
CREATE OR REPLACE VIEW embedsidecar.progress AS
SELECT p.name AS pipeline, s.phase, s.reason, s.finished_at IS NULL AS backfill,
       CASE WHEN s.phase = 'waiting' THEN 0
           ELSE s.rows_seen END AS rows_seen, nullif(s.rows_expected, 0) AS rows_expected, CASE
           WHEN s.phase = 'waiting' THEN 0 ELSE s.tasks_made END AS tasks_made,
       CASE WHEN s.phase = 'rows' THEN d.rows_done / greatest(extract(epoch FROM now() - s.started_at),
           1) END::double precision AS rows_per_second,
       CASE WHEN s.phase = 'waiting'
           AND s.barrier > pg_snapshot_xmin(pg_current_snapshot()) THEN s.barrier END AS waits_for_transactions_before,
       s.requested_at, CASE WHEN s.phase <> 'waiting' THEN s.started_at END AS started_at, s.finished_at,
       d.rows_done, CASE WHEN s.phase = 'rows' AND d.rows_done > 0 AND s.rows_expected > d.rows_done
           THEN round((s.rows_expected - d.rows_done) * greatest(extract(epoch FROM now() - s.started_at), 1)
               / d.rows_done)::double precision END AS seconds_left
FROM   embedsidecar.scan AS s JOIN embedsidecar.pipeline AS p ON p.pipeline_id = s.pipeline_id
       CROSS JOIN LATERAL (
           SELECT CASE s.phase WHEN 'waiting' THEN 0 WHEN 'done' THEN s.rows_seen ELSE greatest(s.rows_seen - (
               SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.pipeline_id = s.pipeline_id
                   AND t.state IN ('todo', 'retrying') LIMIT 100000) AS c), 0) END AS rows_done) AS d;
COMMENT ON VIEW embedsidecar.progress IS
    'The backfill of a pipeline, or the last comparison of all its rows with what was written for them.';
COMMENT ON COLUMN embedsidecar.progress.pipeline IS 'The pipeline''s name.';
COMMENT ON COLUMN embedsidecar.progress.phase IS
    'waiting, rows (reads the table), orphans (searches vectors without a row) or done.';
COMMENT ON COLUMN embedsidecar.progress.reason IS 'Why it was requested.';
COMMENT ON COLUMN embedsidecar.progress.backfill IS 'Whether no scan has ended yet.';
COMMENT ON COLUMN embedsidecar.progress.rows_seen IS
    'Rows compared so far; 0: it waits. Rows that differ are embedded later: rows_done.';
COMMENT ON COLUMN embedsidecar.progress.rows_expected IS
    'The server''s estimate at the beginning, of the previous scan while it waits; NULL: there was none, as before '
    'the first ANALYZE.';
COMMENT ON COLUMN embedsidecar.progress.tasks_made IS
    'Rows that differed and were queued; 0: it waits, or there were none.';
COMMENT ON COLUMN embedsidecar.progress.rows_per_second IS
    'Rows done per second since it began; NULL: it does not read the table now.';
COMMENT ON COLUMN embedsidecar.progress.waits_for_transactions_before IS
    'It begins when every open transaction with an id below this one has ended; NULL: it does not wait.';
COMMENT ON COLUMN embedsidecar.progress.requested_at IS
    'When a scan was last requested; if later than started_at, another follows when this one has ended.';
COMMENT ON COLUMN embedsidecar.progress.started_at IS 'When the present or last scan began; NULL: it waits.';
COMMENT ON COLUMN embedsidecar.progress.finished_at IS 'When the last scan ended.';
COMMENT ON COLUMN embedsidecar.progress.rows_done IS
    'Rows compared so far, without those that wait to be embedded; all rows if the scan is done.';
COMMENT ON COLUMN embedsidecar.progress.seconds_left IS 'Estimate; NULL: not known, or it does not read the table now.';
