-- act_pause: pause pipeline @pipeline, or with NULL all by the switch that is over them. @dry_run only tells.
-- Rows: one: what became of it. Locks: the row of the pipeline or of the installation.
SELECT embedsidecar.pause(@pipeline::text, @dry_run::boolean, @said_by::text);
