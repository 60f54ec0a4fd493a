-- finish_request: record the outcome of a request that this session's program took.
-- Rows: one. Locks: the row, by a function. Index: primary key.
SELECT embedsidecar.finish_request(@request_id::bigint, @reason::text, @hints::text[], @plan::jsonb);
