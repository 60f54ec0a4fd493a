-- exchange_names: rename pipelines (@ids) to other names (@names), some of which are in use among them, in one step.
-- Rows: none. Locks: the pipeline rows. Index: primary key; pipeline_name_key.
WITH new AS (
    SELECT * FROM unnest(@ids::integer[], @names::text[]) AS n (pipeline_id, name)
)
UPDATE embedsidecar.pipeline AS p
SET    name = CASE WHEN @aside THEN 'renamed, number ' || n.pipeline_id ELSE n.name END
FROM   new AS n WHERE p.pipeline_id = n.pipeline_id;
