-- move_job: move a job to another state, or schedule its next check in @pause seconds, unless another sidecar has moved
-- it. The nonce identifies the job: a restored database gives out numbers again.
-- Rows: none. Locks: the job. Index: primary key.
UPDATE embedsidecar.batch_job AS j
SET    state = @to, changed_at = CASE WHEN j.state = @to THEN j.changed_at ELSE now() END,
       next_at = now() + make_interval(secs => @pause), tries = @tries,
       provider_id = coalesce(@provider_id, j.provider_id),
       message = coalesce(@message, CASE j.state WHEN 'ended' THEN j.message ELSE '' END),
       texts = coalesce(@texts, j.texts), tokens = coalesce(@tokens, j.tokens), price = coalesce(@price, j.price),
       hold = CASE WHEN @to IN ('submitting', 'running') THEN coalesce(@hold, j.hold) END
WHERE  j.job_id = @job_id AND j.nonce = @nonce AND j.state = @from AND j.worker_id = @worker_id;
