-- gather_keys: add rows that a scan has found to the batch job that is being gathered, if this transaction has moved
-- the scan (save_scan). A row in another job is processed there, unless that job has already made a task of it.
-- Rows: none. Locks: the job, its rows. Index: batch_job_gathering_idx, primary key of batch_item.
WITH job AS (
    INSERT INTO embedsidecar.batch_job AS j (pipeline_id, pipeline, plugin, model, nonce, state, rows)
    SELECT p.pipeline_id, p.name, p.plugin, p.model, @nonce, 'gathering', cardinality(@row_keys::text[])
    FROM   embedsidecar.pipeline AS p
    WHERE  p.pipeline_id = @pipeline_id AND EXISTS (SELECT FROM embedsidecar.scan AS s
               WHERE s.pipeline_id = p.pipeline_id AND s.xmin = pg_current_xact_id()::xid)
    ON CONFLICT (pipeline_id) WHERE state = 'gathering' DO UPDATE SET rows = j.rows + excluded.rows
    RETURNING j.job_id
)
INSERT INTO embedsidecar.batch_item AS i (pipeline_id, row_key, job_id)
SELECT @pipeline_id, k.row_key, job.job_id
FROM   job CROSS JOIN (SELECT DISTINCT u.row_key COLLATE "C" AS row_key
           FROM unnest(@row_keys::text[]) AS u (row_key)) AS k
ORDER BY k.row_key
ON CONFLICT (pipeline_id, row_key) DO UPDATE SET job_id = excluded.job_id, released = false WHERE i.released;
