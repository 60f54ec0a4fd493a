-- queue_holders: the open transactions of others that may lock tasks or scans, oldest first.
-- Rows: at most @most. Locks: none.
SELECT pid, gid, database, role, application, state, age_seconds, words FROM embedsidecar.queue_holders() LIMIT @most;
