-- extend_lease: a worker's sign of life: its running lease gets another @lease from now. One that was taken over is not
-- there.
-- Rows: none. Locks: the lease. Index: primary key.
UPDATE embedsidecar.lease AS l
SET    extended_at = now(), leased_until = now() + @lease::interval
WHERE  l.pipeline_id = @pipeline_id AND l.place = @place AND l.token = @token;
