-- slots_to_drop: the slots that our checkpoints name, who streams from them, and their publications. here: the slot
-- exists and belongs to this database.
-- Rows: one for each checkpoint. Locks: none.
SELECT k.slot_name::text, s.slot_name IS NOT NULL
    AND s.database = current_database() AS here, coalesce(s.active, false) AS active,
       concat_ws(' ', 'pid', s.active_pid, nullif(a.application_name, '')) AS holder, k.publication::text,
           b.oid IS NOT NULL AS published
FROM   embedsidecar.lsn_checkpoint AS k LEFT JOIN pg_replication_slots AS s ON s.slot_name = k.slot_name
       LEFT JOIN pg_stat_activity AS a ON a.pid = s.active_pid LEFT
           JOIN pg_publication AS b ON b.pubname = k.publication
ORDER BY 1;
