-- hold_lease: begin a write-back: check that the lease is still ours, keep it from being taken over until the
-- transaction ends, and check that the server has not restarted. After a crash (synchronous_commit = off) or a restored
-- disk, the server may have lost what was read from it, but not the lease. Rows without a ledger entry have no other
-- fence. The lock assigns the transaction its id before the next statement reads the epoch: a scan that is requested
-- after an epoch has ended waits for all transactions that ran under it. The commit waits for no replica: what a
-- replica has not received is done again from the task, which is still there then.
-- Rows: one if the lease is ours. Locks: the lease, against its end; it may be extended. Index: primary key.
SELECT set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') = 'off' THEN 'off'
    ELSE 'local' END, true)
FROM   embedsidecar.lease AS l
WHERE  l.pipeline_id = @pipeline_id AND l.place = @place AND l.token = @token
       AND l.timeline = ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::integer
       AND EXISTS (SELECT FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = l.pipeline_id
           AND p.lease_epoch = l.epoch AND p.generation = @generation)
       AND embedsidecar.server_life() = @life::timestamptz
FOR KEY SHARE OF l;
