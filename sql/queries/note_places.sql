-- note_places: record the highest place given to a task, and the transactions that may still hold such a place
-- uncommitted. When these have ended, every task with a place up to it is visible; other transactions do not matter,
-- however long they are open. It is recorded at most twice in 1,024 places: an old snapshot keeps every version of the
-- row. The record follows the places in the WAL, so a server that lost its latest WAL has both or neither. The caller
-- has locked the pipeline's turn (take_turn), so that every lease is visible.
-- Rows: none. Locks: the turn. Index: primary keys. The highest place is read first.
UPDATE embedsidecar.turn AS t
SET    passable = t.top, top = h.top, writers = h.writers,
       live = coalesce((SELECT min(l.place) - 1 FROM embedsidecar.lease AS l WHERE l.pipeline_id = t.pipeline_id
           AND l.place > t.live),
                       pg_sequence_last_value('embedsidecar.lease_place_seq'::regclass), 0)
FROM   (SELECT s.top, ARRAY(SELECT k.virtualtransaction FROM pg_locks AS k
                            WHERE k.locktype = 'relation' AND k.relation = 'embedsidecar.task'::regclass
                                AND k.mode = 'RowExclusiveLock' AND s.top IS NOT NULL
                                  AND k.database = (SELECT d.oid FROM pg_database AS d
                                      WHERE d.datname = current_database())) AS writers
        FROM   (SELECT coalesce(pg_sequence_last_value('embedsidecar.task_seq'::regclass), 0) AS top OFFSET 0) AS s
            OFFSET 0) AS h
WHERE  t.pipeline_id = @pipeline_id AND (h.top >= t.top + 1024 OR t.top >= t.passable + 1024)
    AND NOT t.writers && h.writers;
