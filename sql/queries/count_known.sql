-- count_known: how many rows of a pipeline have a vector that is, for all that is known, that of their text now: a
-- ledger entry of this generation and no task. It reads the pipeline's ledger from end to end: not for whoever
-- asks again and again.
-- Rows: one. Locks: none. Index: none for the tasks, of which there are few or the ledger is still small; primary key
-- of ledger.
SELECT count(*)
FROM   embedsidecar.ledger AS l
WHERE  l.pipeline_id = @pipeline_id AND l.generation = @generation
       AND NOT EXISTS (SELECT FROM embedsidecar.task AS t WHERE t.row_key = l.row_key
           AND t.pipeline_id = l.pipeline_id);
