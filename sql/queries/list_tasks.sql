-- list_tasks: tasks of pipelines as embedsidecar.tasks shows them: those of @states, @class, @code and @row_keys whose
-- change is @older_than old (NULL: all). Oldest first, after number @after_task, for reading in pages. @only: their
-- numbers, from few_tasks; NULL: there are many.
-- Rows: at most @max. Locks: none. Index: primary key of task, or with keys its unique key, or with a code or class
-- task_code_idx, or for one of the states failed, retrying and cancelled alone that of the state.
SELECT v.*, extract(epoch FROM now() - v.committed_at)::double precision AS age_seconds, v.task_id::text AS cursor
FROM   embedsidecar.task AS t
       JOIN embedsidecar.pipeline AS p ON p.pipeline_id = t.pipeline_id -- the view lacks the indexed number
       JOIN (VIEW tasks) AS v ON v.task_id = t.task_id
WHERE  p.name = ANY (@pipelines::text[]) AND t.task_id > @after_task
       AND (@only::bigint[] IS NULL OR t.task_id = ANY (@only::bigint[]))
       AND (@row_keys::text[] IS NULL OR t.row_key = ANY (@row_keys::text[]))
       AND (@states::text[] IS NULL OR v.state = ANY (@states::text[]) -- a single one: below, where it can be estimated
           OR @states::text[] = '{failed}' OR @states::text[] = '{retrying}' OR @states::text[] = '{cancelled}')
       AND (@states::text[] IS DISTINCT FROM '{failed}' OR t.state = 'failed')
       AND (@states::text[] IS DISTINCT FROM '{retrying}' OR t.state = 'retrying')
       AND (@states::text[] IS DISTINCT FROM '{cancelled}' OR t.state = 'cancelled')
       AND (@class::text IS NULL OR t.error_class = @class::text)
           AND (@code::text IS NULL OR t.error_code = @code::text AND t.error_class IS NOT NULL)
       AND (@older_than::interval IS NULL OR t.committed_at < now() - @older_than::interval)
ORDER BY t.task_id LIMIT @max;
