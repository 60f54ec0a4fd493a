-- horizon: how far places of tasks are given out by now, and which transactions may have taken one without having ended. Once these
-- have ended, whatever holds a place up to there can be seen. Any other transaction, however long it is open, does not matter.
-- Rows: one. Locks: none. The highest place is read first.
SELECT h.top, ARRAY(SELECT k.virtualtransaction FROM pg_locks AS k
                    WHERE k.locktype = 'relation' AND k.relation = 'embedsidecar.task'::regclass AND k.mode = 'RowExclusiveLock' AND h.top IS NOT NULL
                          AND k.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())) AS writers
FROM   (SELECT coalesce(pg_sequence_last_value('embedsidecar.task_seq'::regclass), 0) AS top OFFSET 0) AS h;
