-- job_keys: a page of the rows of a job.
-- Rows: row_key. Locks: none. Index: batch_item_job_idx.
SELECT i.row_key FROM embedsidecar.batch_item AS i
WHERE  i.job_id = @job_id AND (@after::text IS NULL OR i.row_key > @after::text COLLATE "C")
ORDER BY i.row_key LIMIT @max;
