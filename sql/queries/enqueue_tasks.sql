-- enqueue_tasks: add one task per changed row, and none for changes that have no effect.
-- Parameters: arrays of one length, one element per change, at most one per (pipeline, key), sorted by both. patterns:
-- what the ledger entry must be LIKE for the change to be dropped; NULL: the row must be processed. seens: hashes of
-- the row as the writer saw it who said that it needs no new vector; they count only if all changes of the row have
-- them, and of an updated row only while no earlier change is set aside or may have been missed. A change is dropped
-- only if no open task exists for its key and the ledger allows it, both in this statement's snapshot, and only if its
-- transaction is visible in that snapshot: the WAL runs ahead of visibility, and so may the ledger. If the change is a
-- write-back that wrote the current ledger entry, an open task stays as it is: a worker that read the row before that
-- write-back cannot overwrite the entry. The transaction 0 has long been visible: changes that were set aside may come
-- after later changes of their row.
-- Rows: one: how many tasks were added, how many changes joined a waiting task, how many were dropped (our own
-- write-backs, which wrote the ledger in the same transaction, and others), and which lanes of which pipelines have
-- work, from which place on. A removed pipeline gets no tasks. Locks: the tasks, by pipeline and key. Index: primary
-- key of ledger, unique key of task.
WITH input AS (
    SELECT pipeline_id, row_key, lane, xid32, first_lsn, last_lsn, committed_at, pattern, seen
    FROM unnest(@pipeline_ids::integer[], @row_keys::text[], @lanes::smallint[], @xids::bigint[], @first_lsns::pg_lsn[],
        @last_lsns::pg_lsn[],
                @committed_ats::timestamptz[], @patterns::bytea[], @seens::bytea[]) AS i (pipeline_id, row_key, lane,
                    xid32, first_lsn, last_lsn, committed_at, pattern, seen)
), epoch AS MATERIALIZED (
    -- pgoutput gives the low half of a transaction id; the high half makes it the nearest id to the current one.
    SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS top, pg_current_snapshot() AS snapshot
), judged AS MATERIALIZED (
    SELECT i.*, x.xid,
           CASE WHEN get_byte(i.seen, 0) = 0 AND (EXISTS (SELECT FROM embedsidecar.aside) OR EXISTS (
               SELECT FROM embedsidecar.scan AS s WHERE s.pipeline_id = i.pipeline_id AND s.gap
                   AND s.finished_at IS NOT NULL)) THEN NULL ELSE i.seen END AS trusted,
           CASE
               WHEN i.pattern IS NULL THEN 'enqueue'
               WHEN NOT pg_visible_in_snapshot(x.xid, e.snapshot) THEN 'enqueue'
               ELSE coalesce((SELECT CASE
                                  WHEN l.xmin::text::bigint = i.xid32 THEN 'own'
                                  WHEN EXISTS (SELECT FROM embedsidecar.task AS t WHERE t.pipeline_id = i.pipeline_id
                                      AND t.row_key = i.row_key OFFSET 0) THEN 'enqueue'
                                  ELSE 'drop' END
                              FROM embedsidecar.ledger AS l WHERE l.pipeline_id = i.pipeline_id
                                  AND l.row_key = i.row_key
                              AND l.source_hash || l.vector_hash LIKE i.pattern
                              AND l.generation = (SELECT p.generation FROM embedsidecar.pipeline AS p
                                  WHERE p.pipeline_id = i.pipeline_id)
                             ), 'enqueue')
           END AS verdict
    FROM input AS i CROSS JOIN epoch AS e
         CROSS JOIN LATERAL (SELECT CASE i.xid32 WHEN 0 THEN '3'::xid8
             ELSE (e.top - ((e.top - i.xid32 + 2147483648) & 4294967295) + 2147483648)::text::xid8 END AS xid) AS x
), upserted AS (
    INSERT INTO embedsidecar.task AS t (pipeline_id, row_key, lane, xid, first_lsn, last_lsn, committed_at, seen)
    SELECT j.pipeline_id, j.row_key, j.lane, j.xid, j.first_lsn, j.last_lsn, j.committed_at, j.trusted
    FROM judged AS j
    WHERE j.verdict = 'enqueue' AND EXISTS (SELECT FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = j.pipeline_id)
    ORDER BY j.pipeline_id, j.row_key COLLATE "C" -- all sessions lock tasks in this order
    ON CONFLICT (pipeline_id, row_key) DO UPDATE SET
        gen           = t.gen + 1,
        -- the transaction of a later change may not be visible yet
        xid           = CASE WHEN excluded.xid = '3' THEN t.xid ELSE excluded.xid END,
        last_lsn      = CASE WHEN excluded.xid = '3' THEN greatest(t.last_lsn, excluded.last_lsn)
            ELSE excluded.last_lsn END,
        committed_at  = CASE WHEN t.state IN ('todo', 'retrying') THEN t.committed_at ELSE excluded.committed_at END,
        first_lsn     = least(t.first_lsn, excluded.first_lsn),
        next_lsn      = least(t.next_lsn, excluded.first_lsn),
        next_committed_at = coalesce(t.next_committed_at, excluded.committed_at),
        seen          = CASE WHEN t.seen IS NOT NULL AND t.state IN ('todo', 'retrying')
            THEN set_byte(excluded.seen, 0, get_byte(excluded.seen, 0) | get_byte(t.seen, 0)) END,
        lane          = greatest(t.lane, excluded.lane),
        seq           = CASE WHEN t.state = 'todo' AND t.lane >= excluded.lane THEN t.seq ELSE excluded.seq END,
        state         = 'todo',
        waits_since   = NULL,
        due_at        = NULL,
        attempt       = 0,
        -- the task may be leased, and the outcome is not known
        losses        = CASE WHEN t.state = 'todo' THEN t.losses ELSE 0 END,
        lost_leases   = CASE WHEN t.state = 'todo' THEN t.lost_leases ELSE 0 END,
        error_class   = NULL,
        error_code    = NULL,
        error_message = NULL
    RETURNING t.pipeline_id, t.lane, t.seq, (t.gen = 1) AS fresh
)
SELECT (SELECT count(*) FROM upserted WHERE fresh)                             AS made,
       (SELECT count(*) FROM upserted WHERE NOT fresh)                         AS joined,
       (SELECT count(*) FROM judged WHERE verdict = 'own')                     AS own,
       (SELECT count(*) FROM judged WHERE verdict = 'drop')                    AS dropped,
       ARRAY(SELECT ARRAY[pipeline_id, lane, min(seq)] FROM upserted GROUP BY pipeline_id, lane) AS touched;
