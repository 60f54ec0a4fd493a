-- list_finished: finished tasks of pipelines, in the form of list_tasks: those of @code and @row_keys that ended
-- @older_than ago (NULL: all). Newest first, after the cursor @after, for reading in pages.
-- Rows: at most @max. Locks: none. Index: with keys that of the partitions of history; otherwise none: it reads the
-- partition of the page, and earlier ones until there are enough.
SELECT f.pipeline, f.row_key, 'finished' AS state, f.attempt, f.error_code, f.committed_at,
       extract(epoch FROM now() - f.committed_at)::double precision AS age_seconds, f.created_at, f.scheduled_at,
       f.started_at, f.finished_at, f.worked_by AS leased_by, f.outcome, f.cursor
FROM   embedsidecar.finished(@pipelines::text[], @row_keys::text[], @code, @older_than, @after, @max) AS f;
