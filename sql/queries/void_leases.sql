-- void_leases: end all leases of a slot's pipelines, so that their holders write nothing: the server may not know the
-- rows that they read. It touches no task and waits for no worker: workers compare the epoch when they write back or
-- lease. The epoch is raised by a random step: a server that lost its latest WAL forgets epochs, and must not give one
-- out twice.
-- Rows: the slot's pipelines. Locks: the pipeline rows. Index: primary key.
UPDATE embedsidecar.pipeline AS p SET lease_epoch = p.lease_epoch + 1 + (random() * 4294967296)::bigint
    WHERE p.slot_name = @slot RETURNING p.pipeline_id;
