-- act_requeue: have the rows @keys of pipeline @pipeline looked at again; NULL: a portion of those that were cancelled. @continues is the entry of
-- the audit that the first portion made.
-- Rows: one: how many were changed, how many remain (NULL: not counted), the entry. Locks: the tasks.
SELECT changed, remaining, audit_id
FROM   embedsidecar.requeue(@pipeline::text, @keys::text[], @max_rows::integer, @dry_run::boolean, @said_by::text, @continues::bigint);
