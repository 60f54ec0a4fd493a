-- list_tasks: tasks of pipelines as embedsidecar.tasks shows them: those of @states, @class, @code and @row_keys whose
-- change is @older_than old; NULL: all. The oldest first, behind number @after_task, for who reads page by page.
-- @only: their numbers, as few_tasks tells them; NULL: there are many.
-- Rows: at most @max. Locks: none. Index: primary key of task, or with keys its unique key, or with a code or class
-- task_code_idx, or for one of the states failed, retrying and cancelled alone that of the state.
SELECT p.name AS pipeline, t.row_key AS key, s.state,
    (ARRAY['low', 'normal', 'high', 'urgent'])[t.lane + 1] AS priority, t.attempt::integer AS attempt,
       coalesce(t.error_class, '') AS class, coalesce(t.error_code, '') AS code,
           coalesce(t.error_message, '') AS message,
       t.committed_at, extract(epoch FROM now() - t.committed_at)::double precision AS age_seconds,
       t.enqueued_at AS created_at, t.due_at AS scheduled_at,
       CASE WHEN t.state = 'todo' AND h.leased_until IS NOT NULL THEN h.started_at ELSE t.started_at END AS started_at,
       CASE WHEN t.state <> 'todo' OR h.leased_until IS NULL THEN t.finished_at END AS finished_at, CASE
           WHEN t.state = 'todo' THEN coalesce(h.instance, '') ELSE '' END AS leased_by,
       t.task_id, t.task_id::text AS cursor
FROM   embedsidecar.task AS t
       JOIN embedsidecar.pipeline AS p ON p.pipeline_id = t.pipeline_id
       LEFT JOIN (SELECT DISTINCT ON (u.task_id) u.task_id, l.leased_until, l.started_at,
           coalesce(w.instance, 'worker ' || l.worker_id) AS instance
                  FROM   embedsidecar.lease AS l
                         JOIN embedsidecar.pipeline AS q ON q.pipeline_id = l.pipeline_id AND q.lease_epoch = l.epoch
                         CROSS JOIN LATERAL unnest(l.task_ids) AS u (task_id)
                         LEFT JOIN embedsidecar.worker AS w ON w.worker_id = l.worker_id
                  ORDER BY u.task_id, l.leased_until DESC) AS h ON h.task_id = t.task_id
       CROSS JOIN LATERAL (SELECT CASE WHEN t.state <> 'todo' OR h.leased_until IS NULL THEN t.state::text
           WHEN h.leased_until >= now() THEN 'in_progress' ELSE 'stale' END AS state) AS s
WHERE  p.name = ANY (@pipelines::text[]) AND t.task_id > @after_task
       AND (@only::bigint[] IS NULL OR t.task_id = ANY (@only::bigint[]))
       AND (@row_keys::text[] IS NULL OR t.row_key = ANY (@row_keys::text[]))
       AND (@states::text[] IS NULL OR s.state = ANY (@states::text[]) -- one alone: below, where that can be estimated
           OR @states::text[] = '{failed}' OR @states::text[] = '{retrying}' OR @states::text[] = '{cancelled}')
       AND (@states::text[] IS DISTINCT FROM '{failed}' OR t.state = 'failed')
       AND (@states::text[] IS DISTINCT FROM '{retrying}' OR t.state = 'retrying')
       AND (@states::text[] IS DISTINCT FROM '{cancelled}' OR t.state = 'cancelled')
       AND (@class::text IS NULL OR t.error_class = @class::text)
           AND (@code::text IS NULL OR t.error_code = @code::text AND t.error_class IS NOT NULL)
       AND (@older_than::interval IS NULL OR t.committed_at < now() - @older_than::interval)
ORDER BY t.task_id LIMIT @max;
