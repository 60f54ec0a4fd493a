CREATE OR REPLACE VIEW embedsidecar.lanes AS
SELECT t.pipeline, t.priority, t.state, count(*) AS rows, extract(epoch
    FROM now() - min(t.committed_at))::double precision AS oldest_seconds,
       extract(epoch FROM now() - max(t.committed_at))::double precision AS newest_seconds,
       avg(extract(epoch FROM now() - t.committed_at)::double precision) * 1000 AS average_ms
FROM   embedsidecar.tasks AS t
GROUP  BY t.pipeline, t.priority, t.state;
COMMENT ON VIEW embedsidecar.lanes IS
    'How many rows wait, are embedded, failed or were cancelled, by pipeline, lane and state, and for how long. It '
    'counts all of them.';
COMMENT ON COLUMN embedsidecar.lanes.pipeline IS 'Its name.';
COMMENT ON COLUMN embedsidecar.lanes.priority IS 'The lane: low, normal, high or urgent.';
COMMENT ON COLUMN embedsidecar.lanes.state IS 'todo, in_progress, stale, retrying, failed or cancelled.';
COMMENT ON COLUMN embedsidecar.lanes.rows IS 'How many.';
COMMENT ON COLUMN embedsidecar.lanes.oldest_seconds IS 'Age of the oldest change among them.';
COMMENT ON COLUMN embedsidecar.lanes.newest_seconds IS 'Age of the newest.';
COMMENT ON COLUMN embedsidecar.lanes.average_ms IS 'Average age of all of them, in milliseconds.';
