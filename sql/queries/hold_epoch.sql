-- hold_epoch: begin a write-back of changes that are embedded without tasks: check that no other streamer has taken the
-- slot since the changes were read and that the server has not restarted (hold_lease says why), and keep the slot from
-- being taken until the transaction ends, which is short: the stream waits for it. Rows without a ledger entry have no
-- other fence. The commit waits for no replica: what a replica has not received comes again from the slot, whose
-- checkpoint is stored later.
-- @life: of the server, when they were read; NULL: over this connection, which ends with it.
-- Rows: one if the epoch is ours. Locks: the checkpoint row, shared. Index: primary key.
SELECT set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') = 'off' THEN 'off'
    ELSE 'local' END, true),
       set_config('statement_timeout', @timeout::text, true)
FROM   embedsidecar.lsn_checkpoint AS c
WHERE  c.slot_name = @slot AND c.epoch = @epoch
       AND c.timeline = ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::integer
       AND (@life::timestamptz IS NULL OR embedsidecar.server_life() = @life::timestamptz)
       AND EXISTS (SELECT FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = @pipeline_id
           AND p.generation = @generation)
FOR SHARE OF c;
