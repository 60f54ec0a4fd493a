-- commit_locally: the commit of this transaction waits for no replica: who holds what the stream wants must not wait
-- for someone who may be away. What a replica has not heard of is done again there.
-- Rows: one. Locks: none.
SELECT set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') = 'off' THEN 'off'
    ELSE 'local' END, true);
