-- sweep_answers: delete answers that are no longer needed.
-- Rows: one, whether some are left. Locks: the deleted rows. Index: answer_made_idx.
WITH swept AS (DELETE FROM embedsidecar.answer AS a WHERE a.made_at < now() - interval '2 minutes')
SELECT EXISTS (SELECT FROM embedsidecar.answer AS a WHERE a.made_at >= now() - interval '2 minutes');
