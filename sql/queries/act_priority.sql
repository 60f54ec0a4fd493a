-- act_priority: give the live changes of pipeline @pipeline the lane @priority from now on. @dry_run only tells.
-- Rows: one: what became of it. Locks: the row of the pipeline.
SELECT embedsidecar.set_priority(@pipeline::text, @priority::text, @dry_run::boolean, @said_by::text);
