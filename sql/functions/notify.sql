-- Notifications, off by default: triggers send them, and notify_changes creates the triggers. Docs: docs/sql.md.
CREATE OR REPLACE FUNCTION embedsidecar.tell_event(event text, pipeline text, more jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- a full queue would fail the transaction; a sleeping listener misses notifications
    IF pg_notification_queue_usage() < 0.5 THEN
        PERFORM pg_notify('embedsidecar_changes',
            jsonb_strip_nulls(jsonb_build_object('event', event, 'pipeline', left(pipeline, 1000)) || more)::text);
    END IF;
END $$;
COMMENT ON FUNCTION embedsidecar.tell_event IS 'For the triggers of notify_changes: sends one notification.';

CREATE OR REPLACE FUNCTION embedsidecar.tell_row() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_TABLE_NAME = 'installation' THEN
        PERFORM embedsidecar.tell_event(CASE WHEN NEW.enabled THEN 'resumed' ELSE 'paused' END, NULL, '{}');
    ELSIF TG_TABLE_NAME = 'audit_log' THEN
        IF TG_OP = 'INSERT' OR NEW.result <> (CASE TG_OP WHEN 'UPDATE' THEN OLD.result END) THEN
            PERFORM embedsidecar.tell_event('job', NEW.pipeline, jsonb_build_object('job', NEW.action,
                'stage', NEW.result, 'open', NEW.open, 'rows', NEW.changed,
                'seconds', round(extract(epoch FROM NEW.finished_at - NEW.acted_at), 3), 'audit_id', NEW.audit_id));
        END IF;
    ELSIF TG_TABLE_NAME = 'worker' THEN
        IF NEW.stream IS DISTINCT FROM OLD.stream THEN
            PERFORM embedsidecar.tell_event('stream', NULL, jsonb_build_object('instance', left(NEW.instance, 1000),
                'state', NEW.stream));
        END IF;
        IF NEW.problems IS DISTINCT FROM OLD.problems THEN
            PERFORM embedsidecar.tell_event('embedder', p.name, jsonb_build_object('instance', left(NEW.instance, 1000),
                'state', coalesce(nullif(NEW.problems -> p.pipeline_id::text ->> 'code', 'held'), 'works')))
            FROM embedsidecar.pipeline AS p
            WHERE nullif(NEW.problems -> p.pipeline_id::text ->> 'code', 'held') IS DISTINCT
                FROM nullif(OLD.problems -> p.pipeline_id::text ->> 'code', 'held');
        END IF;
    ELSE
        IF NEW.enabled <> OLD.enabled THEN
            PERFORM embedsidecar.tell_event(CASE WHEN NEW.enabled THEN 'resumed' ELSE 'paused' END, NEW.name, '{}');
        END IF;
        IF NEW.status <> OLD.status THEN
            PERFORM embedsidecar.tell_event('status', NEW.name, jsonb_build_object('state', NEW.status));
        END IF;
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION embedsidecar.tell_row IS
    'For the triggers of notify_changes: notifies about a pipeline, a job or a sidecar.';

CREATE OR REPLACE FUNCTION embedsidecar.tell_dead_letters() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM embedsidecar.tell_event('dead_letters', p.name, jsonb_build_object('rows', d.rows, 'code', d.code))
    FROM  (SELECT n.pipeline_id, n.error_code AS code, count(*) AS rows FROM new_rows AS n
        JOIN old_rows AS o ON o.task_id = n.task_id
           WHERE n.state = 'failed' AND o.state <> 'failed' GROUP BY 1, 2) AS d
          JOIN embedsidecar.pipeline AS p ON p.pipeline_id = d.pipeline_id;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION embedsidecar.tell_dead_letters IS
    'For the triggers of notify_changes: notifies how many rows became dead letters in a statement.';

CREATE OR REPLACE FUNCTION embedsidecar.notify_changes("on" boolean, dry_run boolean DEFAULT false,
    said_by text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was    boolean := EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = 'embedsidecar.pipeline'::regclass
        AND t.tgname = 'tell');
    limit_ text := current_setting('lock_timeout');
    entry  embedsidecar.audit_log;
    result text;
BEGIN
    IF notify_changes."on" IS NULL THEN
        RAISE EXCEPTION 'notify_changes: expected true or false, not NULL' USING ERRCODE = 'null_value_not_allowed';
    END IF;
    result := CASE WHEN was = notify_changes."on" THEN 'already_' WHEN notify_changes.dry_run THEN 'would_be_'
        ELSE '' END || CASE WHEN notify_changes."on" THEN 'on' ELSE 'off' END;
    entry := embedsidecar.begin_action('notify_changes', NULL, jsonb_build_object('on', notify_changes."on"),
        notify_changes.said_by, notify_changes.dry_run);
    IF notify_changes.dry_run THEN
        RETURN result;
    END IF;
    IF was <> notify_changes."on" THEN
        PERFORM set_config('lock_timeout', '2s', true); -- the stream and the workers queue behind this lock
        IF notify_changes."on" THEN
            CREATE TRIGGER tell AFTER UPDATE ON embedsidecar.task REFERENCING OLD TABLE AS old_rows NEW TABLE AS
                new_rows
                FOR EACH STATEMENT EXECUTE FUNCTION embedsidecar.tell_dead_letters();
            CREATE TRIGGER tell AFTER UPDATE ON embedsidecar.worker FOR EACH ROW
                WHEN (OLD.stream IS DISTINCT FROM NEW.stream OR OLD.problems IS DISTINCT
                    FROM NEW.problems) EXECUTE FUNCTION embedsidecar.tell_row();
            CREATE TRIGGER tell AFTER INSERT OR UPDATE OF result ON embedsidecar.audit_log FOR EACH ROW
                WHEN (NEW.result <> '' AND (NEW.action IN ('scan', 'bulk', 'reembed') OR NEW.action LIKE 'model\_%'))
                EXECUTE FUNCTION embedsidecar.tell_row();
            CREATE TRIGGER tell AFTER UPDATE ON embedsidecar.installation FOR EACH ROW
                WHEN (OLD.enabled <> NEW.enabled) EXECUTE FUNCTION embedsidecar.tell_row();
            CREATE TRIGGER tell AFTER UPDATE ON embedsidecar.pipeline FOR EACH ROW
                WHEN (OLD.enabled <> NEW.enabled OR OLD.status <> NEW.status) EXECUTE FUNCTION embedsidecar.tell_row();
        ELSE
            DROP TRIGGER tell ON embedsidecar.task;
            DROP TRIGGER tell ON embedsidecar.worker;
            DROP TRIGGER tell ON embedsidecar.audit_log;
            DROP TRIGGER tell ON embedsidecar.installation;
            DROP TRIGGER tell ON embedsidecar.pipeline;
        END IF;
        PERFORM set_config('lock_timeout', limit_, true);
    END IF;
    RETURN embedsidecar.end_action(entry.audit_id, result, (was <> notify_changes."on")::integer);
END $$;
COMMENT ON FUNCTION embedsidecar.notify_changes IS
    'Turn notifications on, or off (the default). LISTEN embedsidecar_changes then reports pipelines that are paused, '
    'resumed or do not fit their table, dead letters, stages of jobs, and streams and embedders that fail or work '
    'again, each as JSON, without keys or texts. Every role of the database may listen. Returns on, off, already_on, '
    'already_off or, with dry_run, would_be_on or would_be_off.';
