-- explain_history: how the last looks at a row ended, the latest first. What is older than a day is forgotten.
-- Rows: @max at most. Locks: none. Index: that of each partition of history.
SELECT h.finished_at, extract(epoch FROM now() - h.finished_at)::double precision AS finished_seconds_ago, h.outcome, h.attempt::integer,
       coalesce(h.error_code, '') AS code, h.lsn::text, h.committed_at, coalesce(w.instance, '') AS sidecar
FROM   embedsidecar.history AS h
       LEFT JOIN embedsidecar.worker AS w ON w.worker_id = h.worker_id
WHERE  h.pipeline_id = @pipeline_id AND h.row_key = @row_key
ORDER  BY h.finished_at DESC LIMIT @max;
