-- Jobs: actions that continue after their request. Each has one entry in the audit with its stage. The transaction of
-- the stage writes it, so each stage is recorded once, whatever is killed. Docs: docs/sql.md.

CREATE OR REPLACE FUNCTION embedsidecar.begin_job(action text, pipeline_id integer, arguments jsonb, stage text,
    asked bigint DEFAULT NULL, said_by text DEFAULT NULL) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
INSERT INTO embedsidecar.audit_log AS a (action, pipeline, arguments, result, open, role_name, said_by)
SELECT begin_job.action,
       (SELECT p.name FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = begin_job.pipeline_id),
       jsonb_strip_nulls(begin_job.arguments || jsonb_build_object('pipeline_id', begin_job.pipeline_id::text,
           'asked_by', begin_job.asked)),
       begin_job.stage, true, coalesce(w.role_name, session_user),
       left(coalesce(begin_job.said_by, w.said_by, ''), 200)
FROM  (SELECT) AS one LEFT JOIN embedsidecar.audit_log AS w ON w.audit_id = begin_job.asked
RETURNING a.audit_id
$$;
COMMENT ON FUNCTION embedsidecar.begin_job IS 'Records in the audit that a job has begun, and who requested it.';

CREATE OR REPLACE FUNCTION embedsidecar.move_job(action text, pipeline_id integer, stage text, rows bigint,
    ends boolean, more jsonb DEFAULT '{}') RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
UPDATE embedsidecar.audit_log AS a
SET    result = move_job.stage, changed = coalesce(move_job.rows, a.changed), open = NOT move_job.ends, told = false,
       arguments = a.arguments || move_job.more, finished_at = clock_timestamp()
WHERE  a.open AND a.action = move_job.action
       AND a.arguments ->> 'pipeline_id' IS NOT DISTINCT FROM move_job.pipeline_id::text
RETURNING a.audit_id
$$;
COMMENT ON FUNCTION embedsidecar.move_job IS
    'Records the stage of a pipeline''s open job, and whether it has ended; NULL: there is no open job.';

CREATE OR REPLACE FUNCTION embedsidecar.tell_scan() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        UPDATE embedsidecar.audit_log AS a
        SET    result = 'broken_off', open = false, told = false, finished_at = clock_timestamp(),
               changed = CASE a.action WHEN 'scan' THEN OLD.tasks_made ELSE a.changed END
        WHERE  a.open AND a.arguments ->> 'pipeline_id' = OLD.pipeline_id::text;
        RETURN OLD;
    ELSIF OLD.phase = 'waiting' THEN
        PERFORM embedsidecar.begin_job('scan', NEW.pipeline_id, jsonb_build_object('reason', NEW.reason), NEW.phase,
            coalesce(NEW.asked, (SELECT a.audit_id FROM embedsidecar.audit_log AS a
                JOIN embedsidecar.pipeline AS p ON a.arguments ->> 'pipeline_id' = p.beside::text
                WHERE a.open AND a.action = 'model_change' AND p.pipeline_id = NEW.pipeline_id)));
        NEW.asked := NULL;
    ELSIF OLD.phase <> 'done' THEN -- a scan that waits again after its end has ended first
        PERFORM embedsidecar.move_job('scan', NEW.pipeline_id,
            CASE NEW.phase WHEN 'waiting' THEN 'done' ELSE NEW.phase END, NEW.tasks_made,
            NEW.phase IN ('waiting', 'done'), jsonb_build_object('rows_compared', NEW.rows_seen));
    END IF;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION embedsidecar.tell_scan IS 'For the trigger of scan: records its stages in the audit.';
CREATE OR REPLACE TRIGGER job_moves BEFORE UPDATE ON embedsidecar.scan FOR EACH ROW WHEN (OLD.phase <> NEW.phase)
EXECUTE FUNCTION embedsidecar.tell_scan();
CREATE OR REPLACE TRIGGER job_breaks_off BEFORE DELETE ON embedsidecar.scan FOR EACH ROW
EXECUTE FUNCTION embedsidecar.tell_scan(); -- the pipeline was removed, or its keys changed: end all of its jobs

-- A pause for a bulk load. A resume ends the job: by the load itself, or by a user after the load was killed.
CREATE OR REPLACE FUNCTION embedsidecar.note_bulk(pipeline text DEFAULT NULL, said_by text DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN embedsidecar.begin_job('bulk', CASE WHEN note_bulk.pipeline IS NOT NULL
        THEN embedsidecar.pipeline_meant(note_bulk.pipeline) END, '{}', 'begun', NULL, note_bulk.said_by);
END $$;
COMMENT ON FUNCTION embedsidecar.note_bulk IS
    'For embedsidecar bulk: records in the audit that a load has begun, for which a pipeline, or all, were paused.';

CREATE OR REPLACE FUNCTION embedsidecar.end_bulk(id integer) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT embedsidecar.move_job('bulk', end_bulk.id, 'ended', (SELECT count(*) FROM embedsidecar.task AS t
           WHERE t.enqueued_at >= a.acted_at AND (end_bulk.id IS NULL OR t.pipeline_id = end_bulk.id)), true)
FROM   embedsidecar.audit_log AS a
WHERE  a.open AND a.action = 'bulk' AND a.arguments ->> 'pipeline_id' IS NOT DISTINCT FROM end_bulk.id::text
$$;
COMMENT ON FUNCTION embedsidecar.end_bulk IS
    'For resume: records in the audit that a load has ended, and how many rows were queued since it began.';

-- The change of a model is one job: requested (by SQL or HTTP), made, complete; or refused, dropped.
CREATE OR REPLACE FUNCTION embedsidecar.note_made(live integer, next integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF embedsidecar.move_job('model_change', live, 'made', NULL, false) IS NULL THEN
        PERFORM embedsidecar.begin_job('model_change', live, jsonb_build_object(
            'model', (SELECT p.model FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = next)), 'made');
    END IF;
END $$;
COMMENT ON FUNCTION embedsidecar.note_made IS 'For the set-up: records in the audit that a next generation was made.';

CREATE OR REPLACE FUNCTION embedsidecar.note_complete(next integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    live integer := (SELECT p.beside FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = next AND NOT p.served);
BEGIN
    IF live IS NULL OR NOT EXISTS (SELECT FROM embedsidecar.audit_log AS a WHERE a.open
           AND a.action = 'model_change' AND a.arguments ->> 'pipeline_id' = live::text) THEN
        RETURN true;
    ELSIF cardinality(embedsidecar.generation_lacks(live, next, false)) > 0 THEN
        RETURN false;
    END IF;
    PERFORM embedsidecar.move_job('model_change', live, 'complete',
        (SELECT s.rows_seen FROM embedsidecar.scan AS s WHERE s.pipeline_id = next), true);
    RETURN true;
END $$;
COMMENT ON FUNCTION embedsidecar.note_complete IS
    'For sidecars: records in the audit that a next generation is complete, if it is; false: it is not yet.';
