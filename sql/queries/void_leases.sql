-- void_leases: whatever is leased of a slot's pipelines is leased no more, and what its holders have read is not
-- written: the server may not know the rows they read. It touches no task and waits for no worker: whoever writes
-- back or leases compares the epoch. By how much it is raised is chance: a server that went back forgets epochs, and
-- must not give one out twice.
-- Rows: the slot's pipelines. Locks: the pipeline rows. Index: primary key.
UPDATE embedsidecar.pipeline AS p SET lease_epoch = p.lease_epoch + 1 + (random() * 4294967296)::bigint
    WHERE p.slot_name = @slot RETURNING p.pipeline_id;
