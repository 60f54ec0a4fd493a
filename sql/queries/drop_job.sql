-- drop_job: remove the rows of a job whose tasks are done, and the job when no row is left.
-- Rows: one: whether the job was removed. Locks: the rows, the job. Index: batch_item_job_idx, unique key of task.
WITH done AS (
    DELETE FROM embedsidecar.batch_item AS i
    WHERE  i.job_id = (SELECT j.job_id FROM embedsidecar.batch_job AS j WHERE j.job_id = @job_id AND j.nonce = @nonce)
           AND i.released AND NOT EXISTS (SELECT FROM embedsidecar.task AS t
               WHERE t.row_key = i.row_key AND t.pipeline_id = i.pipeline_id AND t.state IN ('todo', 'retrying'))
    RETURNING i.row_key
), gone AS (
    DELETE FROM embedsidecar.batch_job AS j
    WHERE  j.job_id = @job_id AND j.nonce = @nonce
           AND NOT EXISTS (SELECT FROM embedsidecar.batch_item AS i WHERE i.job_id = j.job_id
               AND NOT EXISTS (SELECT FROM done AS d WHERE d.row_key = i.row_key))
    RETURNING j.job_id
)
SELECT EXISTS (SELECT FROM gone);
