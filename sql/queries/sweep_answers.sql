-- sweep_answers: take away answers that no one takes any more.
-- Rows: one, whether some are left. Locks: the rows taken away. Index: answer_made_idx.
WITH swept AS (DELETE FROM embedsidecar.answer AS a WHERE a.made_at < now() - interval '2 minutes')
SELECT EXISTS (SELECT FROM embedsidecar.answer AS a WHERE a.made_at >= now() - interval '2 minutes');
