-- declare_configuration: record a sidecar's configuration and what became of it, in its row @me, or in a new row that
-- replaces that of an ended sidecar of the same name. Rows of other ended sidecars are deleted after ten minutes. With
-- @taken it took effect now.
-- Rows: one, the number. Locks: the row. Index: primary key.
WITH before AS (
    DELETE FROM embedsidecar.configured AS c
    WHERE  c.configured_id <> @me AND (c.session_name = current_setting('application_name')
           OR c.loaded_at < clock_timestamp() - interval '10 minutes' AND NOT embedsidecar.lives(c))
), kept AS (
    UPDATE embedsidecar.configured AS c
    SET    file = @file, digests = @digests, problems = @problems, settings = @settings, refused = @refused,
           hints = @hints, restart = @restart, takes_requests = @takes,
           loaded_at = CASE WHEN @taken THEN clock_timestamp() ELSE c.loaded_at END,
           refused_at = CASE WHEN @refused = '' THEN NULL WHEN c.refused = @refused THEN c.refused_at
               ELSE clock_timestamp() END
    WHERE  c.configured_id = @me
    RETURNING c.configured_id
), new AS (
    INSERT INTO embedsidecar.configured (slot_name, instance, session_name, file, digests, problems, settings,
        refused, hints, restart, takes_requests)
    SELECT @slot::text::name, @instance, current_setting('application_name'), @file, @digests, @problems, @settings,
           @refused, @hints, @restart, @takes
    WHERE  NOT EXISTS (SELECT FROM kept)
    RETURNING configured_id
)
SELECT configured_id FROM kept UNION ALL SELECT configured_id FROM new;
