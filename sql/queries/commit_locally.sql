-- commit_locally: commit this transaction without waiting for a replica: a transaction that holds what the stream needs
-- must not wait for a replica that may be down. What a replica has not received is done again there.
-- Rows: one. Locks: none.
SELECT set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') = 'off' THEN 'off'
    ELSE 'local' END, true);
