-- write_answers: store the vectors of questions' texts, or why there are none. A crash empties the table anyway: no
-- commit waits.
-- Parameters: arrays of one length, one element per question; of vector and problem one is NULL.
-- Rows: none. Locks: the answers to the same questions, in the order of these. Index: primary key.
INSERT INTO embedsidecar.answer AS a (question, vector, problem)
SELECT q.question, q.vector, q.problem
FROM   unnest(@questions::bytea[], @vectors::text[], @problems::text[]) AS q (question, vector, problem)
       CROSS JOIN set_config('synchronous_commit', 'off', true)
ORDER BY q.question
ON CONFLICT (question) DO UPDATE SET vector = excluded.vector, problem = excluded.problem, made_at = clock_timestamp();
