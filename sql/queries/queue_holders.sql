-- queue_holders: the open transactions of others that may hold what tasks and scans are made of, the oldest first.
-- Rows: at most @most. Locks: none.
SELECT pid, gid, database, role, application, state, age_seconds, words FROM embedsidecar.queue_holders() LIMIT @most;
