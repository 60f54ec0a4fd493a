-- act_resume_for: have pipeline @pipeline work for @time from now on, whatever its hours are; 0 ends that. @dry_run only tells.
-- Rows: one: what became of it. Locks: the row of the pipeline.
SELECT embedsidecar.resume_for(@pipeline::text, @time::interval, @dry_run::boolean, @said_by::text);
