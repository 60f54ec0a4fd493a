-- list_workers: sidecars that work on the queue of this database, and those that ended or were killed recently, as
-- embedsidecar.workers shows them.
-- Rows: one per sidecar. Locks: none.
SELECT w.worker_id, w.slot_name, w.instance, w.version, w.stream, w.stream_detail, w.problems, extract(epoch
    FROM now() - w.last_seen_at)::double precision AS seen_seconds_ago,
       w.succeeded_24h + w.failed_24h AS processed_24h, w.succeeded_24h, w.failed_24h, w.last_batch_at, w.speeds,
       w.host, w.role, embedsidecar.runs(w) AS runs,
       w.started_at, w.last_seen_at,
       (SELECT coalesce(sum(cardinality(l.task_ids)), 0)::bigint FROM embedsidecar.lease AS l
           WHERE l.worker_id = w.worker_id AND l.leased_until >= now()) AS rows_leased
FROM   embedsidecar.worker AS w
ORDER BY w.worker_id;
