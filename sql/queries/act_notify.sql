-- act_notify: turn notifications on or off (@on). @dry_run only tells.
-- Rows: one: what became of it. Locks: to make or drop triggers, those of task, worker, scan, installation and pipeline, for a moment.
SELECT embedsidecar.notify_changes(@on::boolean, @dry_run::boolean, @said_by::text);
