-- read_measures: the figures of pipelines since @since, in rows of @minutes minutes. @names: these pipelines; NULL: all
-- together.
-- Rows: one for each pipeline and period in which something was done or waited. Locks: none. Index: primary key.
SELECT m.began, m.rows_embedded, m.rows_reused, m.rows_failed, m.texts_embedded, m.tokens, m.price, m.backlog,
    m.freshness
FROM   embedsidecar.measure AS m
WHERE  m.pipeline_id = ANY (CASE WHEN @names::text[] IS NULL THEN '{0}'
           ELSE ARRAY(SELECT p.pipeline_id FROM embedsidecar.pipeline AS p WHERE p.name = ANY (@names::text[])) END)
       AND m.minutes = @minutes AND m.began >= @since
ORDER BY m.began;
