-- give_back_worker: end a worker's leases without a result and without counting a try: it stops in good order.
-- Parameters: arrays of one length: pipelines, and behind which place their live leases are.
-- Rows: none. Locks: the leases. Index: primary key.
DELETE FROM embedsidecar.lease AS l
USING  unnest(@pipeline_ids::integer[], @lives::bigint[]) AS i (pipeline_id, live)
WHERE  l.pipeline_id = i.pipeline_id AND l.place > i.live AND l.worker_id = @worker;
