-- take_job: a due job of a pipeline, of this sidecar or of one that no longer runs. A clock that was set back blocks
-- none: no pause is as long as ten minutes. age: seconds since its state changed.
-- Rows: at most one. Locks: the job. Index: batch_job_pipeline_idx.
UPDATE embedsidecar.batch_job AS j
SET    worker_id = @worker_id
WHERE  j.job_id = (SELECT f.job_id FROM embedsidecar.batch_job AS f
           WHERE  f.pipeline_id = @pipeline_id AND f.state <> 'gathering'
                  AND f.next_at - now() NOT BETWEEN interval '1 microsecond' AND interval '10 min'
                  AND (f.worker_id IS NULL OR f.worker_id = @worker_id OR NOT EXISTS (
                      SELECT FROM embedsidecar.worker AS w WHERE w.worker_id = f.worker_id AND embedsidecar.runs(w)))
           ORDER BY f.next_at, f.job_id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING j.job_id, j.state, j.nonce, coalesce(j.provider_id, ''), j.texts, j.tokens, j.hold, j.tries,
    extract(epoch FROM now() - j.changed_at)::double precision AS age;
