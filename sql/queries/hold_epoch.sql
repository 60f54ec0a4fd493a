-- hold_epoch: begin a write-back of changes that are worked at once, without tasks: see that no one else has taken the
-- slot since they were read, and that the server has not begun anew (hold_lease says why), and keep the slot from being
-- taken while the transaction lasts, which is not long: the stream waits for it. A row that the ledger does not know
-- yet has nothing else to compare. No replica is waited for by the commit: what one has not heard of comes again from
-- the slot, whose checkpoint comes after it.
-- @life: of the server, when they were read; NULL: over this connection, which lasts no longer.
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
