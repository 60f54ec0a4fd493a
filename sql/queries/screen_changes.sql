-- screen_changes: which changed rows need no task: because nothing changed (drop), or because they may be worked at once (now).
-- Parameters: arrays of one length, one element per change, at most one per (pipeline, key); patterns are NULL where the row must be
-- looked at, otherwise what the ledger entry must be LIKE for the change to be dropped.
-- All of it is seen in this statement's one snapshot: that the transaction is visible in it, that no open task names the row, and what the
-- ledger says. So whoever leases a task of the row that comes later reads the row as this change left it, or newer.
-- Rows: one: a verdict for each change (drop, now, or task), and whether any is not visible yet. Locks: none. Index: unique key of task,
-- primary keys of ledger and pipeline.
WITH epoch AS MATERIALIZED (
    -- pgoutput gives the low half of a transaction id; the high half is that of the nearest whole one to now.
    SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS top, pg_current_snapshot() AS snapshot
), judged AS MATERIALIZED (
    SELECT i.place, v.visible,
           CASE
               WHEN NOT v.visible THEN 'task'
               WHEN EXISTS (SELECT FROM embedsidecar.task AS t WHERE t.pipeline_id = i.pipeline_id AND t.row_key = i.row_key
                            OFFSET 0) THEN 'task'
               WHEN NOT EXISTS (SELECT FROM embedsidecar.pipeline AS p CROSS JOIN embedsidecar.installation AS a
                                WHERE p.pipeline_id = i.pipeline_id AND p.enabled AND a.enabled
                                      AND embedsidecar.is_open(p.active_minutes, p.active_zone, p.open_until) OFFSET 0) THEN 'task'
               ELSE coalesce((SELECT CASE WHEN l.xmin::text::bigint = i.xid32 THEN 'own' ELSE 'drop' END
                              FROM embedsidecar.ledger AS l WHERE l.pipeline_id = i.pipeline_id AND l.row_key = i.row_key
                              AND l.source_hash || l.vector_hash LIKE i.pattern
                              AND l.generation = (SELECT p.generation FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = i.pipeline_id)
                             ), 'now')
           END AS verdict
    FROM   unnest(@pipeline_ids::integer[], @row_keys::text[], @xids::bigint[], @patterns::bytea[]) WITH ORDINALITY
           AS i (pipeline_id, row_key, xid32, pattern, place)
           CROSS JOIN epoch AS e
           CROSS JOIN LATERAL (SELECT pg_visible_in_snapshot((e.top - ((e.top - i.xid32 + 2147483648) & 4294967295) + 2147483648)::text::xid8,
                                                             e.snapshot) AS visible) AS v
)
SELECT coalesce(array_agg(j.verdict ORDER BY j.place), '{}') AS verdicts, coalesce(bool_or(NOT j.visible), false) AS hidden FROM judged AS j;
