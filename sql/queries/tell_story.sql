-- tell_story: judge the facts of a row, a story as JSON, and describe it in sentences.
-- Rows: one per sentence, in order; facts of the verdict alone. Locks: none.
SELECT topic, sentence, CASE WHEN topic = 'verdict' THEN facts ELSE '{}' END FROM embedsidecar.tell(@story::jsonb);
