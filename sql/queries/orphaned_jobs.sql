-- orphaned_jobs: jobs of removed pipelines, which are to be cancelled; with @all every job.
-- Rows: one each. Locks: none. Index: primary key of pipeline.
SELECT j.job_id, j.pipeline, j.plugin, j.model, j.nonce, j.state, coalesce(j.provider_id, '') AS provider_id, j.hold
FROM   embedsidecar.batch_job AS j
WHERE  @all OR NOT EXISTS (SELECT FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = j.pipeline_id);
