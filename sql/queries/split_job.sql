-- split_job: move some rows of a job into a new one: @row_keys, or all from @after on.
-- Rows: none. Locks: the rows. Index: batch_item_job_idx.
WITH moved AS (
    INSERT INTO embedsidecar.batch_job AS n (pipeline_id, pipeline, plugin, model, nonce, state, rows, next_at)
    SELECT j.pipeline_id, j.pipeline, j.plugin, j.model, @nonce, @state,
        (SELECT count(*) FROM embedsidecar.batch_item AS i WHERE i.job_id = j.job_id
            AND (i.row_key = ANY (@row_keys::text[]) OR i.row_key > @after::text COLLATE "C")), now()
    FROM   embedsidecar.batch_job AS j WHERE j.job_id = @job_id
    RETURNING n.job_id
)
UPDATE embedsidecar.batch_item AS i
SET    job_id = moved.job_id
FROM   moved
WHERE  i.job_id = @job_id AND (i.row_key = ANY (@row_keys::text[]) OR i.row_key > @after::text COLLATE "C");
