-- batched_texts: the vectors that a pipeline's batch jobs returned for texts.
-- Rows: text_hash, vector. Locks: none. Index: batch_job_pipeline_idx, primary key of batch_text.
SELECT DISTINCT ON (t.text_hash) t.text_hash, t.vector
FROM   embedsidecar.batch_job AS j JOIN embedsidecar.batch_text AS t ON t.job_id = j.job_id
WHERE  j.pipeline_id = @pipeline_id AND j.state = 'ended' AND t.text_hash = ANY (@text_hashes::bytea[])
       AND t.vector IS NOT NULL;
