-- switch_pipeline: pause a pipeline (@on is false), or let it go on.
-- Rows: none; one is changed unless it stood so. Locks: the row of the pipeline. Index: primary key.
UPDATE embedsidecar.pipeline SET enabled = @on WHERE enabled <> @on AND pipeline_id = @pipeline_id;
