-- count_lanes: embedsidecar.lanes of @pipelines.
-- Rows: one for each pipeline, lane and state that has any. Locks: none. Index: none, it counts all.
SELECT l.pipeline, l.priority, l.state, l.rows, l.oldest_seconds, l.newest_seconds, l.average_ms
FROM   embedsidecar.lanes AS l
WHERE  l.pipeline = ANY (@pipelines::text[])
ORDER  BY l.pipeline, array_position('{low,normal,high,urgent}'::text[], l.priority) DESC, l.state;
