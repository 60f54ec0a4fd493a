-- act_cancel: take the rows @keys of pipeline @pipeline out of the queue. @continues is the entry of the audit that the first portion made.
-- Rows: one: how many were changed, how many remain (NULL: not counted), the entry. Locks: the tasks, SKIP LOCKED.
SELECT changed, remaining, audit_id
FROM   embedsidecar.cancel(@pipeline::text, @keys::text[], @max_rows::integer, @dry_run::boolean, @said_by::text, @continues::bigint);
