-- give_back_worker: end a worker's leases without a result and without counting an attempt, when it stops cleanly.
-- Rows: none. Locks: the leases. Index: primary key.
DELETE FROM embedsidecar.lease AS l
USING  embedsidecar.turn AS t
WHERE  l.pipeline_id = t.pipeline_id AND l.place > t.live AND l.worker_id = @worker;
