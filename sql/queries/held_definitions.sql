-- held_definitions: the definitions by pipeline name that the other sidecars of @slot (not number @me) are configured
-- with, or were when they ended. NULL stands for a sidecar of an older version, which does not report them.
-- Rows: one per sidecar. Locks: none.
SELECT c.digests, embedsidecar.lives(c) AS lives
FROM   embedsidecar.configured AS c
WHERE  c.slot_name = @slot::text::name AND c.configured_id <> @me
UNION ALL
SELECT NULL, true
FROM   embedsidecar.worker AS w
WHERE  w.slot_name = @slot::text::name AND embedsidecar.runs(w)
       AND NOT EXISTS (SELECT FROM embedsidecar.configured AS c WHERE c.session_name = w.session_name);
