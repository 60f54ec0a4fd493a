-- orphaned_jobs: jobs of removed pipelines, which are to be cancelled; with @all every job, but in a copied database
-- none: there they are those of the original.
-- Rows: one each. Locks: none. Index: primary key of pipeline.
SELECT j.job_id, j.pipeline, j.plugin, j.model, j.nonce, j.state, coalesce(j.provider_id, '') AS provider_id, j.hold
FROM   embedsidecar.batch_job AS j
WHERE  CASE WHEN @all THEN NOT EXISTS (SELECT FROM embedsidecar.slot_states() AS s WHERE s.state = 'copied')
           ELSE NOT EXISTS (SELECT FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = j.pipeline_id) END;
