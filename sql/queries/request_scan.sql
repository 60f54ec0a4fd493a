-- request_scan: request a scan (reconcile) of pipelines. A running scan starts again when it ends; a waiting scan keeps
-- waiting, with its first reason. The scan waits for every transaction that has an id now. The snapshot's xmax would
-- not do: it is one past the last id that ended, and running transactions may have higher ids.
-- @gap: changes may have been missed, so it is unknown which rows are current until the scan has ended.
-- @partitions: those whose rows are compared. @owners: the rows to compare, named by rows that are joined to them. Both
-- NULL: every row. @lost: rows may be gone. After two requests the scan does what either asks for; with more than 1,000
-- named rows it compares every row.
-- Rows: none. Locks: the scan rows. Index: primary key.
INSERT INTO embedsidecar.scan AS s (pipeline_id, reason, barrier, gap, partitions, owners, lost)
SELECT p.pipeline_id, @reason, pg_current_xact_id(), @gap::boolean, @partitions::oid[], @owners::text[], @lost
FROM   embedsidecar.pipeline AS p
WHERE  p.pipeline_id = ANY (@pipeline_ids::integer[])
ORDER BY p.pipeline_id
ON CONFLICT (pipeline_id) DO UPDATE SET
    reason = CASE WHEN s.phase = 'waiting' THEN s.reason ELSE excluded.reason END, gap = s.gap OR excluded.gap,
    barrier = greatest(s.barrier, excluded.barrier), requested = s.requested + 1,
    (partitions, owners) = (SELECT CASE WHEN w.named THEN w.partitions END, CASE WHEN w.named THEN w.owners END
        FROM (SELECT m.*, m.named AND coalesce(cardinality(m.owners), 0) <= 1000 FROM (
            SELECT CASE WHEN s.phase = 'done' THEN excluded.partitions ELSE s.partitions || excluded.partitions END,
                CASE WHEN s.phase = 'done' OR s.owners IS NULL THEN excluded.owners
                    WHEN excluded.owners IS NULL THEN s.owners
                    ELSE ARRAY(SELECT DISTINCT o FROM unnest(s.owners || excluded.owners) AS o ORDER BY o) END,
                coalesce(excluded.partitions::text, excluded.owners::text) IS NOT NULL
                    AND (s.phase = 'done' OR coalesce(s.partitions::text, s.owners::text) IS NOT NULL))
            AS m (partitions, owners, named)) AS w (partitions, owners, given, named)),
    lost = s.phase <> 'done' AND s.lost OR excluded.lost,
    requested_at = now(), phase = CASE WHEN s.phase = 'done' THEN 'waiting' ELSE s.phase END;
