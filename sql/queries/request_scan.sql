-- request_scan: ask for a scan (reconcile) of pipelines. One that runs is begun again when it ends; one that waits
-- waits on, for the reason that was given first. The scan waits for every transaction that has an id by now. The
-- snapshot's xmax would not do: it is one past the last id that ended, and those that run may be above it.
-- @gap: changes may have been missed, so that no one knows which rows are up to date until it has ended.
-- @partitions: those whose rows are compared; NULL: every row is. @lost: rows may be gone. Of two requests the scan
-- does what either asks for.
-- Rows: none. Locks: the scan rows. Index: primary key.
INSERT INTO embedsidecar.scan AS s (pipeline_id, reason, barrier, gap, partitions, lost)
SELECT p.pipeline_id, @reason, pg_current_xact_id(), @gap::boolean, @partitions::oid[], @lost
FROM   embedsidecar.pipeline AS p
WHERE  p.pipeline_id = ANY (@pipeline_ids::integer[])
ORDER BY p.pipeline_id
ON CONFLICT (pipeline_id) DO UPDATE SET
    reason = CASE WHEN s.phase = 'waiting' THEN s.reason ELSE excluded.reason END, gap = s.gap OR excluded.gap,
    barrier = greatest(s.barrier, excluded.barrier), requested = s.requested + 1,
    partitions = CASE WHEN s.phase = 'done' THEN excluded.partitions
                      WHEN s.partitions IS NOT NULL AND excluded.partitions IS NOT NULL THEN s.partitions
                          || excluded.partitions END,
    lost = s.phase <> 'done' AND s.lost OR excluded.lost,
    requested_at = now(), phase = CASE WHEN s.phase = 'done' THEN 'waiting' ELSE s.phase END;
