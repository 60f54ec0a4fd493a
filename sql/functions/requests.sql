-- Pipelines by SQL: a request waits in a table until a sidecar, or embedsidecar apply, carries it out like a changed
-- file. A role with EXECUTE may request; its rights are checked when the request is carried out. A dry run is only
-- planned. Docs: docs/sql.md, section "Pipelines".

CREATE OR REPLACE FUNCTION embedsidecar.waits_for(r embedsidecar.request) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT coalesce((SELECT format('sidecar %s %s', c.instance, CASE WHEN r.dry_run THEN 'computes its plan'
                     ELSE 'carries it out' END)
                 FROM embedsidecar.configured AS c
                 WHERE c.slot_name = r.slot_name AND c.takes_requests AND embedsidecar.lives(c) LIMIT 1),
    'it waits for a sidecar that may set up pipelines, or for embedsidecar apply: none runs now')
$$;
COMMENT ON FUNCTION embedsidecar.waits_for IS 'What a request waits for.';

CREATE OR REPLACE FUNCTION embedsidecar.from_file(file text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT format('it comes from %s: change it there', CASE
    WHEN embedsidecar.reads(to_regclass('embedsidecar.configuration')) THEN 'the file ' || from_file.file
    ELSE 'a file' END)
$$;
COMMENT ON FUNCTION embedsidecar.from_file IS
    'That a pipeline comes from a file, with its path for roles that may see the configuration.';

CREATE OR REPLACE FUNCTION embedsidecar.not_declared(pipeline text) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT coalesce(
    (SELECT CASE WHEN c.file = '' THEN format('it is configured by the command line of sidecar %s', c.instance)
                 ELSE embedsidecar.from_file(c.file) END
     FROM   embedsidecar.configured AS c
     WHERE  c.digests ? not_declared.pipeline AND embedsidecar.lives(c)
            AND NOT EXISTS (SELECT FROM embedsidecar.request AS r -- the sidecar does not know it yet
                WHERE r.pipeline = not_declared.pipeline AND r.action = 'drop' AND r.state = 'done'
                      AND r.finished_at > c.loaded_at)
     LIMIT 1),
    (SELECT CASE WHEN p.origin = '' THEN 'it was set up by embedsidecar init; embedsidecar uninstall removes it'
                 ELSE embedsidecar.from_file(p.origin) END
     FROM   embedsidecar.pipeline AS p WHERE p.name = not_declared.pipeline AND p.origin <> 'sql'))
WHERE NOT EXISTS (SELECT FROM embedsidecar.declared AS d WHERE d.name = not_declared.pipeline)
$$;
COMMENT ON FUNCTION embedsidecar.not_declared IS
    'The origin of a pipeline that is not declared in the database; NULL: it is declared, or does not exist.';

CREATE OR REPLACE FUNCTION embedsidecar.request_pipeline(action text, pipeline text, definition jsonb, slot name,
    said_by text, dry_run boolean)
RETURNS TABLE (request_id bigint, state text, detail text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    verb   text := request_pipeline.action || '_pipeline';
    as_    text := embedsidecar.asker();
    slot_  name := request_pipeline.slot;
    slots  name[];
    foreign_ text;
    known  embedsidecar.declared;
    r      embedsidecar.request;
    entry  embedsidecar.audit_log;
    most_bytes constant integer := 65536;
    most_open  constant integer := 100;
    most       constant integer := 1000;
BEGIN
    -- With a foreign key, triggers of its table's owner run in the session that changes the other table. A cursor WITH
    -- HOLD that a trigger opens is read at the end of the transaction, when no trigger runs.
    IF pg_trigger_depth() > 0
       OR EXISTS (SELECT FROM pg_cursors AS c WHERE c.is_holdable AND c.creation_time >= now()) THEN
        RAISE EXCEPTION '%: a trigger may not call this, because it runs in sessions of other roles', verb
            USING ERRCODE = 'insufficient_privilege',
                HINT = 'call it from a statement of your own, in a transaction that opens no cursor WITH HOLD';
    END IF;
    IF request_pipeline.action <> 'drop' AND jsonb_typeof(request_pipeline.definition) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION '%: expected keys and values, as a pipeline has them in the file', verb
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = '{"name": "docs", "table": "docs", "columns": ["title"], "into": {"table": "docs_embedding"}}';
    END IF;
    IF octet_length(request_pipeline.definition::text) > most_bytes THEN
        RAISE EXCEPTION '%: % bytes are too many for a pipeline', verb, octet_length(request_pipeline.definition::text)
            USING ERRCODE = 'program_limit_exceeded', HINT = format('it has at most %s bytes', most_bytes);
    END IF;
    IF coalesce(request_pipeline.pipeline, '') = '' OR octet_length(request_pipeline.pipeline) > 200
       OR request_pipeline.pipeline ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION '%: name: expected the name of the pipeline, of at most 200 bytes', verb
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF request_pipeline.action = 'change' AND coalesce(request_pipeline.definition ->> 'name',
           CASE WHEN request_pipeline.definition ? 'name' THEN '' ELSE request_pipeline.pipeline END)
           <> request_pipeline.pipeline THEN
        RAISE EXCEPTION '%: the name of a pipeline cannot be changed', verb USING ERRCODE = 'invalid_parameter_value',
            HINT = 'create a pipeline with the new name, then drop this one';
    END IF;
    SELECT d.* INTO known FROM embedsidecar.declared AS d WHERE d.name = request_pipeline.pipeline;
    SELECT o.* INTO r FROM embedsidecar.request AS o
    WHERE  o.state IN ('waiting', 'to_plan') AND o.dry_run = request_pipeline.dry_run
           AND o.pipeline = request_pipeline.pipeline ORDER BY o.request_id DESC LIMIT 1;
    IF r.action = request_pipeline.action AND r.definition = coalesce(request_pipeline.definition, '{}')
       AND r.role_name = as_ THEN -- it was already requested
        RETURN QUERY SELECT r.request_id, 'waiting', embedsidecar.waits_for(r);
        RETURN;
    END IF;
    IF request_pipeline.dry_run THEN -- a dry run creates no pipeline
        SELECT o.* INTO r FROM embedsidecar.request AS o
        WHERE  o.state = 'waiting' AND o.pipeline = request_pipeline.pipeline ORDER BY o.request_id DESC LIMIT 1;
    END IF;
    foreign_ := embedsidecar.not_declared(request_pipeline.pipeline);
    IF foreign_ IS NOT NULL AND r.request_id IS NULL THEN
        RAISE EXCEPTION '%: pipeline "%" is not declared by SQL or HTTP: %', verb, request_pipeline.pipeline, foreign_
            USING ERRCODE = CASE request_pipeline.action WHEN 'create' THEN 'duplicate_object'
                ELSE 'object_not_in_prerequisite_state' END;
    END IF;
    IF request_pipeline.action = 'create' AND known.name IS NOT NULL AND r.request_id IS NULL
       AND NOT (request_pipeline.dry_run AND known.definition = request_pipeline.definition) THEN
        IF known.definition = request_pipeline.definition THEN
            RETURN QUERY SELECT known.request_id, 'done', 'it already exists';
            RETURN;
        END IF;
        RAISE EXCEPTION '%: pipeline "%" already exists, with another definition', verb, request_pipeline.pipeline
            USING ERRCODE = 'duplicate_object', HINT = 'change_pipeline changes it';
    END IF;
    IF request_pipeline.action <> 'create' AND known.name IS NULL AND r.request_id IS NULL THEN
        RAISE EXCEPTION '%: there is no pipeline "%"', verb, request_pipeline.pipeline
            USING ERRCODE = 'undefined_object';
    END IF;
    slot_ := coalesce(known.slot_name, r.slot_name, slot_);
    IF slot_ IS NULL OR NOT EXISTS (SELECT FROM embedsidecar.lsn_checkpoint AS c WHERE c.slot_name = slot_) THEN
        SELECT array_agg(c.slot_name ORDER BY c.slot_name) INTO slots FROM embedsidecar.lsn_checkpoint AS c;
        IF slot_ IS NOT NULL OR cardinality(slots) IS DISTINCT FROM 1 THEN
            RAISE EXCEPTION '%: name the slot of the pipeline', verb USING ERRCODE = 'invalid_parameter_value',
                HINT = coalesce('slot: there are ' || array_to_string(slots, ', '),
                    'no slot is set up here yet: run embedsidecar init with a first pipeline');
        END IF;
        slot_ := slots[1];
    END IF;
    IF (SELECT count(*) FROM embedsidecar.request AS o WHERE o.state IN ('waiting', 'to_plan')
        AND o.role_name = as_) >= most_open THEN
        RAISE EXCEPTION '%: % requests of % wait already', verb, most_open, as_
            USING ERRCODE = 'program_limit_exceeded', HINT = 'embedsidecar.requests lists them, and what they wait for';
    END IF;
    IF request_pipeline.action = 'create' AND (SELECT count(*) FROM embedsidecar.declared) >= most THEN
        RAISE EXCEPTION '%: there are already % pipelines by SQL and HTTP, which is the maximum', verb, most
            USING ERRCODE = 'program_limit_exceeded', HINT = 'declare others in a file';
    END IF;
    entry := embedsidecar.begin_action(verb, NULL, CASE WHEN octet_length(request_pipeline.definition::text) > 3000
        THEN jsonb_build_object('sha256',
            encode(sha256(convert_to(request_pipeline.definition::text, 'UTF8')), 'hex'))
        ELSE jsonb_strip_nulls(jsonb_build_object('definition', request_pipeline.definition)) END,
        request_pipeline.said_by, request_pipeline.dry_run); -- without an entry
    UPDATE embedsidecar.audit_log AS a SET pipeline = request_pipeline.pipeline WHERE a.audit_id = entry.audit_id;
    PERFORM embedsidecar.end_action(entry.audit_id, 'requested', 0);
    INSERT INTO embedsidecar.request AS n (slot_name, action, pipeline, definition, role_name, role_oid, said_by,
        audit_id, dry_run, state)
    VALUES (slot_, request_pipeline.action, request_pipeline.pipeline, coalesce(request_pipeline.definition, '{}'),
        as_, quote_ident(as_)::regrole, coalesce(left(request_pipeline.said_by, 200), ''), entry.audit_id,
        request_pipeline.dry_run, CASE WHEN request_pipeline.dry_run THEN 'to_plan' ELSE 'waiting' END)
    RETURNING n.* INTO r;
    PERFORM pg_notify('embedsidecar_waiting', 'requests') WHERE pg_notification_queue_usage() < 0.5;
    RETURN QUERY SELECT r.request_id, 'waiting', embedsidecar.waits_for(r);
END $$;
COMMENT ON FUNCTION embedsidecar.request_pipeline IS
    'For create_pipeline, change_pipeline and drop_pipeline: stores the request.';

CREATE OR REPLACE FUNCTION embedsidecar.create_pipeline(definition jsonb, slot name DEFAULT NULL,
    said_by text DEFAULT NULL, dry_run boolean DEFAULT false)
RETURNS TABLE (request_id bigint, state text, detail text)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT r.request_id, r.state, r.detail
FROM   (SELECT CASE WHEN jsonb_typeof(definition) = 'object' AND NOT definition ? 'name' THEN
                   jsonb_strip_nulls(jsonb_build_object('name', CASE WHEN definition ->> 'table' LIKE '%.%'
                       THEN definition ->> 'table' ELSE 'public.' || (definition ->> 'table') END)) || definition
               ELSE definition END AS named) AS d
       CROSS JOIN LATERAL embedsidecar.request_pipeline('create',
           CASE jsonb_typeof(d.named) WHEN 'object' THEN d.named ->> 'name' END, d.named, slot, said_by,
           dry_run) AS r
$$;
COMMENT ON FUNCTION embedsidecar.create_pipeline IS
    'Requests a pipeline, with the keys that a pipeline has in the file. A running sidecar, or embedsidecar apply, '
    'sets it up, or with dry_run reports what that would do; the view requests has the outcome.';

CREATE OR REPLACE FUNCTION embedsidecar.change_pipeline(pipeline text, changes jsonb, said_by text DEFAULT NULL,
    dry_run boolean DEFAULT false)
RETURNS TABLE (request_id bigint, state text, detail text)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT request_id, state, detail
FROM   embedsidecar.request_pipeline('change', pipeline, changes, NULL, said_by, dry_run)
$$;
COMMENT ON FUNCTION embedsidecar.change_pipeline IS
    'Requests new values of these keys of a pipeline that create_pipeline made; null removes a key.';

CREATE OR REPLACE FUNCTION embedsidecar.drop_pipeline(pipeline text, said_by text DEFAULT NULL,
    dry_run boolean DEFAULT false)
RETURNS TABLE (request_id bigint, state text, detail text)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT request_id, state, detail FROM embedsidecar.request_pipeline('drop', pipeline, NULL, NULL, said_by, dry_run)
$$;
COMMENT ON FUNCTION embedsidecar.drop_pipeline IS
    'Requests the removal of a pipeline that create_pipeline made. Its vectors stay.';

CREATE OR REPLACE FUNCTION embedsidecar.defined(r embedsidecar.request) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT coalesce(jsonb_object_agg(e.key, e.value) FILTER (WHERE e.value <> 'null'), '{}')
FROM   jsonb_each(CASE r.action WHEN 'change' THEN coalesce((SELECT d.definition FROM embedsidecar.declared AS d
           WHERE d.name = r.pipeline), '{}') ELSE '{}' END || r.definition) AS e
$$;
COMMENT ON FUNCTION embedsidecar.defined IS 'The whole definition that results from a request.';

-- If a sidecar is killed, the next one begins its request again, and finds what was already made.
CREATE OR REPLACE FUNCTION embedsidecar.next_request(slot name)
RETURNS TABLE (request_id bigint, action text, pipeline text, definition jsonb, role_name name, role_oid oid,
    said_by text, tries integer, dry_run boolean)
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
-- A program that is killed every few seconds finishes no request: an attempt that begins again at once counts once.
UPDATE embedsidecar.request AS r
SET    taken_by = current_setting('application_name'),
       tries = r.tries + CASE WHEN r.counted_at > now() - interval '30 s' THEN 0 ELSE 1 END,
       counted_at = CASE WHEN r.counted_at > now() - interval '30 s' THEN r.counted_at ELSE now() END
WHERE  r.request_id = (SELECT o.request_id FROM embedsidecar.request AS o
           WHERE o.state IN ('waiting', 'to_plan') AND o.slot_name = next_request.slot ORDER BY o.request_id LIMIT 1)
       AND r.state IN ('waiting', 'to_plan') AND (r.taken_by IN ('', current_setting('application_name'))
           OR NOT EXISTS (SELECT FROM pg_stat_activity AS a
               WHERE a.datname = current_database() AND a.application_name = r.taken_by
                     AND embedsidecar.may_work(a.usesysid)))
RETURNING r.request_id, r.action, r.pipeline, embedsidecar.defined(r), r.role_name, r.role_oid, r.said_by, r.tries,
    r.dry_run
$$;
COMMENT ON FUNCTION embedsidecar.next_request IS
    'For the program that sets up pipelines: the first request of a slot, with the whole resulting definition; none '
    'while another session carries it out.';

CREATE OR REPLACE FUNCTION embedsidecar.finish_request(request_id bigint, reason text, hints text[], plan jsonb)
RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    r    embedsidecar.request;
    most constant integer := 1000;
BEGIN
    UPDATE embedsidecar.request AS n
    SET    state = CASE WHEN finish_request.reason IS NOT NULL THEN 'refused' WHEN n.dry_run THEN 'planned'
               ELSE 'done' END,
           plan = CASE WHEN n.dry_run AND finish_request.reason IS NULL THEN finish_request.plan END,
           reason = left(coalesce(finish_request.reason, ''), 8000), hints = finish_request.hints,
           finished_at = clock_timestamp()
    WHERE  n.request_id = finish_request.request_id AND n.state IN ('waiting', 'to_plan')
           AND n.taken_by = current_setting('application_name')
    RETURNING n.* INTO r;
    IF r.request_id IS NULL THEN
        RETURN false;
    END IF;
    IF r.state = 'done' AND r.action = 'drop' THEN
        DELETE FROM embedsidecar.declared AS d WHERE d.name = r.pipeline;
    ELSIF r.state = 'done' THEN
        INSERT INTO embedsidecar.declared AS d (name, slot_name, definition, request_id)
        VALUES (r.pipeline, r.slot_name, embedsidecar.defined(r), r.request_id)
        ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, request_id = excluded.request_id;
        UPDATE embedsidecar.pipeline AS p SET origin = 'sql' WHERE p.name = r.pipeline;
    END IF;
    PERFORM embedsidecar.end_action(r.audit_id, r.state, CASE r.state WHEN 'done' THEN 1 ELSE 0 END);
    DELETE FROM embedsidecar.request AS o WHERE o.request_id IN (
        SELECT n.request_id FROM (SELECT i.request_id, row_number() OVER (ORDER BY i.request_id DESC) AS number
            FROM embedsidecar.request AS i WHERE i.role_name = r.role_name AND i.finished_at IS NOT NULL) AS n
        WHERE n.number > most AND NOT EXISTS (SELECT FROM embedsidecar.declared AS d
            WHERE d.request_id = n.request_id)); -- the requesting role of a pipeline is checked by it
    PERFORM pg_notify('embedsidecar_waiting', 'requests') WHERE pg_notification_queue_usage() < 0.5;
    RETURN true;
END $$;
COMMENT ON FUNCTION embedsidecar.finish_request IS
    'For the program that sets up pipelines: records the outcome of a request; without a reason it is done, or '
    'planned. Keeps the newest 1,000 of each role, and those of declared pipelines.';
