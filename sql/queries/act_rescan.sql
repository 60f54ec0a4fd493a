-- act_rescan: have every row of pipeline @pipeline compared with what was written for it. @dry_run only tells.
-- Rows: one: what became of it. Locks: the scan row.
SELECT embedsidecar.rescan(@pipeline::text, @dry_run::boolean, @said_by::text);
