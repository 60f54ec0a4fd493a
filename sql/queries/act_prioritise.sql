-- act_prioritise: give the rows @keys of pipeline @pipeline that wait, or with NULL all that do, the lane @priority. @continues is the entry of the
-- audit that the first portion made.
-- Rows: one: how many were changed, how many remain (NULL: not counted), the entry. Locks: the tasks.
SELECT changed, remaining, audit_id
FROM   embedsidecar.prioritise(@pipeline::text, @priority::text, @keys::text[], @max_rows::integer, @dry_run::boolean, @said_by::text, @continues::bigint);
