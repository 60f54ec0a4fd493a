-- close_job: stop gathering rows for a job. The job is submitted if it has more than @over rows or follows other jobs;
-- otherwise its rows become tasks.
-- Rows: none. Locks: the job. Index: batch_job_gathering_idx.
UPDATE embedsidecar.batch_job AS j
SET    state = CASE WHEN j.rows > @over OR EXISTS (SELECT FROM embedsidecar.batch_job AS o
           WHERE o.pipeline_id = j.pipeline_id AND o.state NOT IN ('gathering', 'ended')) THEN 'closed'
           ELSE 'ended' END,
       changed_at = now()
WHERE  j.pipeline_id = @pipeline_id AND j.state = 'gathering';
