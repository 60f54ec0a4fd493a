-- act_backfill: have every row of pipeline @pipeline looked at now. @dry_run only tells.
-- Rows: one: what became of it. Locks: the scan row.
SELECT embedsidecar.backfill(@pipeline::text, @dry_run::boolean, @said_by::text);
