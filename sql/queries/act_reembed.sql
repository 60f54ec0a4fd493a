-- act_reembed: have the rows @keys of pipeline @pipeline embedded anew; NULL: a portion of all. @continues is the entry of the audit that the
-- first portion made.
-- Rows: one: how many were changed, how many remain (NULL: not counted), the entry. Locks: the ledger rows; then the tasks, or the scan row.
SELECT changed, remaining, audit_id
FROM   embedsidecar.reembed(@pipeline::text, @keys::text[], @max_rows::integer, @dry_run::boolean, @said_by::text, @continues::bigint);
