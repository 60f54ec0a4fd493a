-- act_discard: put a portion of the dead letters of pipeline @pipeline away: those of @class, @code and @keys whose change is @older_than
-- old; NULL: all. @continues is the entry of the audit that the first portion made.
-- Rows: one: how many were changed, how many remain (NULL: not counted), the entry. Locks: the tasks, SKIP LOCKED.
SELECT changed, remaining, audit_id
FROM   embedsidecar.discard_dead(@pipeline::text, @class::text, @code::text, @keys::text[], @older_than::interval, @max_rows::integer, @dry_run::boolean, @said_by::text, @continues::bigint);
