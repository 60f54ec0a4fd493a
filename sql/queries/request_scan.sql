-- request_scan: ask for a scan (reconcile) of pipelines. One that runs is begun again when it ends; one that waits
-- waits on, for the reason that was given first. The scan waits for every transaction that has an id by now. The
-- snapshot's xmax would not do: it is one past the last id that ended, and those that run may be above it.
-- @gap: changes may have been missed, so that no one knows which rows are up to date until it has ended.
-- @partitions: those whose rows are compared. @owners: rows that are compared, named by what is joined to them. Both
-- NULL: every row is. @lost: rows may be gone. Of two requests the scan does what either asks for; where more than
-- 1,000 rows are named every row is compared.
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
