-- busy_pipelines: the pipelines that have tasks, in whatever state.
-- Rows: a number each, in ascending order. Locks: none. Index: the first task of each by its unique index.
SELECT p.pipeline_id FROM embedsidecar.pipeline AS p
WHERE  (SELECT t.task_id FROM embedsidecar.task AS t WHERE t.pipeline_id = p.pipeline_id LIMIT 1) IS NOT NULL
ORDER  BY p.pipeline_id;
