-- hold_lease: begin a write-back: see that the lease is still ours, and keep it from being taken over while the
-- transaction lasts, and that the server has not begun anew: what was read of it before may be forgotten, by a crash
-- (synchronous_commit = off) or because its disk was restored, and the lease still there. A row that the ledger does
-- not know yet has nothing else to compare. The lock gives the transaction its id before the next statement looks at
-- the epoch: a scan that is asked for after an epoch has ended waits for all that were seen under it. No replica is
-- waited for by the commit: what one has not heard of is done again from the task, which it still has then.
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
