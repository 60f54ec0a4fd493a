-- held_definitions: what the other sidecars of @slot are configured with, beside that of number @me, or were when they
-- ended: their definitions, by the names of pipelines. NULL stands for one of an older program, which does not say.
-- Rows: one per sidecar. Locks: none.
SELECT c.digests, embedsidecar.lives(c) AS lives
FROM   embedsidecar.configured AS c
WHERE  c.slot_name = @slot::text::name AND c.configured_id <> @me
UNION ALL
SELECT NULL, true
FROM   embedsidecar.worker AS w
WHERE  w.slot_name = @slot::text::name AND embedsidecar.runs(w)
       AND NOT EXISTS (SELECT FROM embedsidecar.configured AS c WHERE c.session_name = w.session_name);
