-- list_finished: finished tasks of pipelines as embedsidecar.finished_tasks shows them, in the form of list_tasks:
-- those of @code and @row_keys that ended @older_than ago; NULL: all. The newest first, behind the first @after_task,
-- for who reads page by page.
-- Rows: at most @max. Locks: none. Index: with keys that of the partitions of history; else none: it reads the
-- partition that is written, and the ones before it until there are enough.
SELECT f.name AS pipeline, f.row_key AS key, 'finished' AS state, '' AS priority, f.attempt::integer AS attempt,
       '' AS class, coalesce(f.error_code, '') AS code, '' AS message, f.committed_at,
       extract(epoch FROM now() - f.committed_at)::double precision AS age_seconds, f.created_at, f.scheduled_at,
       f.finished_at - make_interval(secs => f.took_ms / 1000.0) AS started_at, f.finished_at,
       coalesce(w.instance, '') AS leased_by, row_number() OVER () AS task_id, f.outcome::text
FROM   embedsidecar.history_turn AS t
       CROSS JOIN generate_series(0, 7) AS a (age)
       CROSS JOIN LATERAL (SELECT p.name, h.*
                           FROM   embedsidecar.history AS h
                                  JOIN embedsidecar.pipeline AS p ON p.pipeline_id = h.pipeline_id
                           WHERE  h.bucket = ((t.bucket - a.age + 8) % 8)::smallint
                                  AND p.name = ANY (@pipelines::text[])
                                  AND (@row_keys::text[] IS NULL OR h.row_key = ANY (@row_keys::text[]))
                                  AND (@code::text IS NULL OR h.error_code = @code::text)
                                  AND (@older_than::interval IS NULL OR h.finished_at < now() - @older_than::interval)
                           ORDER  BY h.finished_at DESC, p.name, h.row_key LIMIT @after_task::bigint + @max) AS f
       LEFT JOIN embedsidecar.worker AS w ON w.worker_id = f.worker_id
OFFSET @after_task LIMIT @max;
