-- The batch jobs of pipelines. Docs: docs/batches.md.

-- It is called for each pipeline, so it keeps its plan, though the program's sessions plan each statement again.
CREATE OR REPLACE FUNCTION embedsidecar.batch_jobs(pipeline_id integer)
RETURNS TABLE (state text, job text, rows bigint, texts bigint, tokens bigint, price double precision,
    seconds double precision, message text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = auto AS $$
SELECT j.state, coalesce(j.provider_id, ''), j.rows, j.texts, j.tokens, j.tokens * j.price / 1e6,
       extract(epoch FROM now() - j.changed_at)::double precision, j.message
FROM   embedsidecar.batch_job AS j
WHERE  j.pipeline_id = batch_jobs.pipeline_id
ORDER BY j.job_id
$$;
COMMENT ON FUNCTION embedsidecar.batch_jobs IS
    'The open batch jobs of a pipeline: state and its age in seconds, rows, texts, estimated tokens and price.';
