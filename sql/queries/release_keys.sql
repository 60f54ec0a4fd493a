-- release_keys: a page of the rows of an ended job, which become tasks in the same transaction.
-- Rows: row_key. Locks: the rows. Index: batch_item_job_idx.
UPDATE embedsidecar.batch_item AS i
SET    released = true
WHERE  i.job_id = (SELECT j.job_id FROM embedsidecar.batch_job AS j WHERE j.job_id = @job_id AND j.nonce = @nonce)
       AND i.row_key = ANY (ARRAY(SELECT f.row_key FROM embedsidecar.batch_item AS f
           WHERE f.job_id = @job_id AND NOT f.released ORDER BY f.row_key LIMIT @max FOR UPDATE))
RETURNING i.row_key;
