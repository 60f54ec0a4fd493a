-- status_pipelines: the state of each pipeline, from tables alone, so that it works while no sidecar runs.
-- @cap: where exact counts of tasks end. @found: what the catalog says now of pipelines, by their numbers.
-- @only: the number of the wanted one; NULL: all that serve.
-- Rows: one per pipeline. Locks: none. Index: task_todo_idx, task_retry_idx, task_failed_idx, task_cancelled_idx, by a
-- function.
SELECT s.pipeline_id, s.pipeline, s.slot_name, s.table_schema, s.table_name, s.replaced_by, s.dropped, s.model,
    s.plugin, s.generation, s.state, s.reason,
       s.hints, s.works, s.needs_act, s.severity, s.may_miss, s.enabled, s.active_hours, NOT s.is_open, s.status,
           s.status_detail, s.pending, s.running, s.retrying,
       s.failed, s.cancelled, s.oldest_seconds, s.waits_for, s.aside, s.scan_phase, s.scan_reason, s.scan_seen,
           s.scan_expected, s.scan_rate, s.scan_left,
       s.tokens_embedded, s.texts_embedded, s.texts_reused, s.rows_unchanged, s.rows_estimate, s.checkpoint::text,
       embedsidecar.texts_cut(s.pipeline_id),
       CASE WHEN l.budget IS NOT NULL OR l.model_budget IS NOT NULL
           THEN (SELECT jsonb_agg(to_jsonb(b)) FROM embedsidecar.budgets(s.pipeline_id) AS b) END,
       (SELECT jsonb_agg(to_jsonb(j)) FROM embedsidecar.batch_jobs(s.pipeline_id) AS j), c.tokens, c.price,
       l.max_attempts, l.labels
FROM   embedsidecar.states(@cap, @found::jsonb, @only::integer) AS s
       CROSS JOIN LATERAL embedsidecar.search_costs(s.pipeline_id) AS c
       LEFT JOIN embedsidecar.pipeline AS l ON l.pipeline_id = s.pipeline_id
WHERE  @only::integer IS NOT NULL OR s.pipeline_id NOT IN (SELECT p.pipeline_id FROM embedsidecar.pipeline AS p
    WHERE p.beside IS NOT NULL);
