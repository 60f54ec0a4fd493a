-- gathered: the jobs of a pipeline: how many there are, how many of these are closed but not ended, and how many rows
-- are gathered for the next one.
-- Rows: one. Locks: none. Index: batch_job_pipeline_idx.
SELECT count(*), count(*) FILTER (WHERE j.state NOT IN ('gathering', 'ended')),
       coalesce(sum(j.rows) FILTER (WHERE j.state = 'gathering'), 0)::bigint
FROM   embedsidecar.batch_job AS j
WHERE  j.pipeline_id = @pipeline_id;
