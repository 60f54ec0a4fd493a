-- sign_of_life: record that sidecar @worker runs and what it has done in the last 24 hours; @idle: how long ago its
-- last batch ended (NULL: there was none). Rows of sidecars that have not been seen for a day are deleted.
-- Rows: one: whether the audit has entries that are not in a log yet; none if the sidecar is not known. Locks: the rows
-- of the sidecars. Index: primary key.
WITH dead AS (
    DELETE FROM embedsidecar.worker AS w WHERE w.last_seen_at < now() - interval '1 day'
)
UPDATE embedsidecar.worker AS w
SET    last_seen_at = now(), succeeded_24h = @succeeded, failed_24h = @failed, last_batch_at = now() - @idle::interval
WHERE  w.worker_id = @worker
RETURNING EXISTS (SELECT FROM embedsidecar.audit_log AS a WHERE NOT a.told) AS audit;
