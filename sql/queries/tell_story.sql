-- tell_story: judge what is known of a row, a story as JSON, and tell of it.
-- Rows: one per sentence, in order; facts of the verdict alone. Locks: none.
SELECT topic, sentence, CASE WHEN topic = 'verdict' THEN facts ELSE '{}' END FROM embedsidecar.tell(@story::jsonb);
