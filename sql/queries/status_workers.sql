-- status_workers: the running sidecars, and what each reports. One that was killed leaves its row: it counts only while
-- it was seen recently and a session of its name exists.
-- Rows: one per sidecar. Locks: none.
SELECT w.worker_id, w.slot_name, w.instance, w.version, w.stream, w.stream_detail, w.problems, extract(epoch
    FROM now() - w.last_seen_at)::double precision AS seen_seconds_ago,
       w.succeeded_24h + w.failed_24h AS processed_24h, w.succeeded_24h, w.failed_24h, w.last_batch_at, w.speeds
FROM   embedsidecar.worker AS w
WHERE  embedsidecar.runs(w)
ORDER BY w.worker_id;
