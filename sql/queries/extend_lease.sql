-- extend_lease: a worker's heartbeat: extend its running lease to @lease from now. A lease that was taken over is not
-- found.
-- Rows: none. Locks: the lease. Index: primary key.
UPDATE embedsidecar.lease AS l
SET    extended_at = now(), leased_until = now() + @lease::interval
WHERE  l.pipeline_id = @pipeline_id AND l.place = @place AND l.token = @token;
