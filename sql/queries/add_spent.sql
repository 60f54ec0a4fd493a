-- add_spent: add what pipelines have cost since the last call, what cost nothing, and their figures: to the totals, to
-- the minute that was @ago, and to its ten minutes. Sidecars add to what others have recorded. Parameters: arrays of
-- one length, one element per pipeline. No task waits before the places that a turn has passed; skipping them avoids
-- the index entries of finished tasks, a quarter of a million in a minute of a scan.
-- Rows: none. Locks: the rows of the pipelines' costs and of these minutes. Index: primary keys, task_todo_idx,
-- task_retry_idx.
WITH given AS MATERIALIZED (
    SELECT i.*
    FROM   unnest(@pipeline_ids::integer[], @tokens::bigint[], @embedded::bigint[], @reused::bigint[],
                  @unchanged::bigint[], @cut::bigint[], @rows_embedded::bigint[], @rows_reused::bigint[],
                  @rows_failed::bigint[], @prices::double precision[], @search_tokens::bigint[],
                  @search_prices::double precision[], @freshness::text[]) AS i (pipeline_id, tokens, embedded, reused,
               unchanged, cut, rows_embedded, rows_reused, rows_failed, price, search_tokens, search_price, freshness)
    WHERE  EXISTS (SELECT FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = i.pipeline_id)
), spent AS (
    INSERT INTO embedsidecar.spent AS s (pipeline_id, tokens_embedded, texts_embedded, texts_reused, rows_unchanged,
        texts_cut, search_tokens, search_price)
    SELECT i.pipeline_id, i.tokens, i.embedded, i.reused, i.unchanged, i.cut, i.search_tokens, i.search_price
    FROM given AS i ORDER BY i.pipeline_id
    ON CONFLICT (pipeline_id) DO UPDATE
    SET    tokens_embedded = s.tokens_embedded + excluded.tokens_embedded,
           texts_embedded = s.texts_embedded + excluded.texts_embedded,
           texts_reused = s.texts_reused + excluded.texts_reused,
           rows_unchanged = s.rows_unchanged + excluded.rows_unchanged, texts_cut = s.texts_cut + excluded.texts_cut,
           search_tokens = s.search_tokens + excluded.search_tokens,
           search_price = s.search_price + excluded.search_price
), waits AS MATERIALIZED (
    SELECT p.pipeline_id, t.n + r.n + a.n AS backlog
    FROM   embedsidecar.pipeline AS p
           CROSS JOIN LATERAL (SELECT sum(c.n) AS n
               FROM unnest(coalesce((SELECT f.passed FROM embedsidecar.turn AS f WHERE f.pipeline_id = p.pipeline_id),
                   '{0,0,0,0}')) WITH ORDINALITY AS l (after, number)
                   CROSS JOIN LATERAL (SELECT count(*) AS n FROM (SELECT FROM embedsidecar.task AS t
                       WHERE t.state = 'todo' AND t.pipeline_id = p.pipeline_id AND t.lane = l.number - 1
                           AND t.seq > l.after LIMIT 1000000) AS m) AS c) AS t
           CROSS JOIN LATERAL (SELECT count(*) AS n FROM (SELECT FROM embedsidecar.task AS t
               WHERE t.state = 'retrying' AND t.pipeline_id = p.pipeline_id LIMIT 1000000) AS c) AS r
           CROSS JOIN LATERAL (SELECT count(*) AS n FROM (SELECT FROM embedsidecar.aside AS s
               WHERE s.pipeline_id = p.pipeline_id LIMIT 1000000) AS c) AS a
), each AS (
    SELECT p.pipeline_id, g.rows_embedded, g.rows_reused, g.rows_failed, g.embedded, g.tokens, g.price, w.backlog,
        g.freshness::integer[] AS freshness
    FROM   embedsidecar.pipeline AS p
           LEFT JOIN given AS g ON g.pipeline_id = p.pipeline_id
           LEFT JOIN waits AS w ON w.pipeline_id = p.pipeline_id
    WHERE  g.pipeline_id IS NOT NULL OR w.backlog > 0
    UNION ALL
    SELECT 0, sum(g.rows_embedded), sum(g.rows_reused), sum(g.rows_failed), sum(g.embedded), sum(g.tokens),
        sum(g.price), (SELECT sum(w.backlog) FROM waits AS w),
        (SELECT array_agg(u.n ORDER BY u.step) FROM (
            SELECT f.step, sum(f.n)::integer AS n
            FROM   given AS h CROSS JOIN LATERAL unnest(h.freshness::integer[]) WITH ORDINALITY AS f (n, step)
            GROUP BY f.step) AS u)
    FROM   given AS g
    HAVING count(*) > 0 OR EXISTS (SELECT FROM waits AS w WHERE w.backlog > 0)
)
INSERT INTO embedsidecar.measure AS m (pipeline_id, minutes, place, began, rows_embedded, rows_reused, rows_failed,
    texts_embedded, tokens, price, backlog, freshness)
SELECT e.pipeline_id, s.minutes, b.number % s.places, to_timestamp(b.number * 60 * s.minutes),
    coalesce(e.rows_embedded, 0), coalesce(e.rows_reused, 0), coalesce(e.rows_failed, 0), coalesce(e.embedded, 0),
    coalesce(e.tokens, 0), coalesce(e.price, 0), coalesce(e.backlog, 0), coalesce(e.freshness, '{}')
FROM   each AS e
       CROSS JOIN (VALUES (1, 128), (10, 1024)) AS s (minutes, places)
       CROSS JOIN LATERAL (
           SELECT floor(extract(epoch FROM now() - @ago::interval) / 60 / s.minutes)::bigint) AS b (number)
ORDER BY e.pipeline_id, s.minutes
ON CONFLICT (pipeline_id, minutes, place) DO UPDATE
SET    began = excluded.began,
       (rows_embedded, rows_reused, rows_failed, texts_embedded, tokens, price, backlog, freshness) = (
           SELECT excluded.rows_embedded + coalesce(o.rows_embedded, 0),
               excluded.rows_reused + coalesce(o.rows_reused, 0), excluded.rows_failed + coalesce(o.rows_failed, 0),
               excluded.texts_embedded + coalesce(o.texts_embedded, 0), excluded.tokens + coalesce(o.tokens, 0),
               excluded.price + coalesce(o.price, 0), greatest(excluded.backlog, o.backlog),
               (SELECT coalesce(array_agg(coalesce(u.a, 0) + coalesce(u.b, 0) ORDER BY u.step), '{}')
                FROM   unnest(excluded.freshness, o.freshness) WITH ORDINALITY AS u (a, b, step))
           FROM   (SELECT) AS one LEFT JOIN (SELECT m.*) AS o ON o.began = excluded.began);
