-- wanted_questions: which questions still need an answer: the caller waits, by this server's clock, and no recent
-- answer exists. After a restart, answered questions are read again.
-- Parameters: arrays of one length, one element per question; @until in microseconds since 1970.
-- Rows: the places of those in the arrays, from 1. Locks: none. Index: primary key.
SELECT q.place
FROM   unnest(@questions::bytea[], @until::bigint[]) WITH ORDINALITY AS q (question, until, place)
WHERE  q.until > extract(epoch FROM clock_timestamp()) * 1000000
       AND NOT EXISTS (SELECT FROM embedsidecar.answer AS a
                       WHERE a.question = q.question AND a.problem IS NULL
                           AND a.made_at > clock_timestamp() - interval '10 s');
