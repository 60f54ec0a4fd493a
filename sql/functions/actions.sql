-- What people and programs do to pipelines and rows by SQL. One implementation of each action is here; the command line and HTTP call it.
-- All look for names in pg_catalog alone and run as the schema's owner: nobody else needs a right to a table. Docs: docs/sql.md.

CREATE OR REPLACE FUNCTION embedsidecar.pipeline_meant(pipeline text) RETURNS integer
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    found integer[];
BEGIN
    SELECT array_agg(p.pipeline_id) INTO found FROM embedsidecar.pipeline AS p WHERE p.name = pipeline_meant.pipeline;
    IF found IS NULL THEN -- named after its table, whose schema nobody types
        SELECT array_agg(p.pipeline_id) INTO found FROM embedsidecar.pipeline AS p
        WHERE  p.name = p.table_schema || '.' || p.table_name AND p.table_name = pipeline_meant.pipeline;
    END IF;
    IF cardinality(found) = 1 THEN
        RETURN found[1];
    END IF;
    IF pipeline_meant.pipeline IS NULL THEN
        RAISE EXCEPTION 'name a pipeline' USING ERRCODE = 'null_value_not_allowed', HINT = 'SELECT pipeline FROM embedsidecar.pipelines names them all';
    END IF;
    RAISE EXCEPTION 'there is no pipeline "%"', left(pipeline_meant.pipeline, 200) USING ERRCODE = 'undefined_object',
        HINT = coalesce('there are: ' || (SELECT string_agg(n.name, ', ') FROM (
                            SELECT p.name FROM embedsidecar.pipeline AS p
                            WHERE  has_table_privilege(session_user, 'embedsidecar.pipeline', 'SELECT') OR has_table_privilege(session_user, 'embedsidecar.pipelines', 'SELECT')
                                   OR has_any_column_privilege(session_user, p.table_oid, 'SELECT')
                            ORDER BY p.name LIMIT 20) AS n),
                        CASE WHEN EXISTS (SELECT FROM embedsidecar.pipeline) THEN 'none of the pipelines is of a table that you may read'
                             ELSE 'none is set up in this database: embedsidecar init sets them up' END);
END $$;
COMMENT ON FUNCTION embedsidecar.pipeline_meant(text) IS 'The number of the pipeline of this name, or of the only one that is named after a table of this name; an error when there is none.';

-- Who goes on with an action does so with what it was begun with, or its entry of the audit would not tell what was done:
-- the same rows, and, as one role may act for several people, the same person. Of more than a hundred keys the entry has a hash. And times stand there
-- in one form, whatever form the session has.
CREATE OR REPLACE FUNCTION embedsidecar.begin_action(action text, pipeline_id integer, arguments jsonb, said_by text, continues bigint, max_rows integer, keys text[], dry_run boolean)
RETURNS embedsidecar.audit_log
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    entry embedsidecar.audit_log;
    about jsonb := begin_action.arguments;
    style text := current_setting('intervalstyle');
    word  text;
    value interval;
    by_   text := coalesce(left(begin_action.said_by, 200), '');
BEGIN
    IF begin_action.dry_run IS NULL THEN
        RAISE EXCEPTION '%: dry_run: expected true or false, not NULL', begin_action.action USING ERRCODE = 'null_value_not_allowed';
    END IF;
    IF pg_is_in_recovery() AND NOT begin_action.dry_run THEN
        RAISE EXCEPTION '%: this server is a standby, where nothing can be changed', begin_action.action
            USING ERRCODE = 'read_only_sql_transaction', HINT = 'do it on the primary';
    END IF;
    IF begin_action.max_rows IS NULL OR begin_action.max_rows NOT BETWEEN 1 AND 100000 THEN
        RAISE EXCEPTION '%: max_rows: expected a number from 1 to 100000, not %', begin_action.action, coalesce(begin_action.max_rows::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'what is left is told in remaining: call it again';
    END IF;
    IF cardinality(begin_action.keys) > 100000 THEN
        RAISE EXCEPTION '%: % keys are too many for one call', begin_action.action, cardinality(begin_action.keys)
            USING ERRCODE = 'program_limit_exceeded', HINT = 'give at most 100000 keys at once';
    END IF;
    IF (CASE WHEN array_ndims(begin_action.keys) > 1 THEN true ELSE array_position(begin_action.keys, NULL) IS NOT NULL END) THEN
        RAISE EXCEPTION '%: keys: expected a list of keys without NULL', begin_action.action
            USING ERRCODE = 'invalid_parameter_value', HINT = 'keys are written as embedsidecar.tasks shows them: ARRAY[''1'', ''2'']';
    END IF;
    IF begin_action.dry_run THEN
        RETURN NULL;
    END IF;
    FOREACH word IN ARRAY ARRAY['older_than', 'time'] LOOP -- as the session prints them: in the audit all are of one form
        value := (about ->> word)::interval;
        PERFORM set_config('intervalstyle', 'postgres', true);
        about := about || jsonb_build_object(word, value::text);
        PERFORM set_config('intervalstyle', style, true);
    END LOOP;
    about := jsonb_strip_nulls(jsonb_build_object('pipeline_id', begin_action.pipeline_id::text, 'keys', to_jsonb(begin_action.keys[1:100]),
        'keys_given', cardinality(begin_action.keys),
        'keys_sha256', CASE WHEN cardinality(begin_action.keys) > 100 THEN encode(sha256(convert_to(to_jsonb(begin_action.keys)::text, 'UTF8')), 'hex') END)
        || about);
    IF begin_action.continues IS NOT NULL THEN
        SELECT a.* INTO entry FROM embedsidecar.audit_log AS a
        WHERE  a.audit_id = begin_action.continues AND a.action = begin_action.action AND a.role_name = session_user AND a.said_by = by_ AND a.arguments = about
        FOR UPDATE;
        IF entry.audit_id IS NULL THEN
            RAISE EXCEPTION '%: continues: no action % of yours is % of these rows', begin_action.action, begin_action.continues, begin_action.action
                USING ERRCODE = 'invalid_parameter_value', HINT = 'continues is the audit_id that the first portion returned: give all else as it was given there, or begin anew without it';
        END IF;
        RETURN entry;
    END IF;
    INSERT INTO embedsidecar.audit_log AS a (action, pipeline, arguments, said_by, place)
    SELECT begin_action.action, (SELECT p.name FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = begin_action.pipeline_id), about, by_,
           coalesce(pg_sequence_last_value('embedsidecar.task_seq'::regclass), 0)
    RETURNING a.* INTO entry;
    RETURN entry;
END $$;
COMMENT ON FUNCTION embedsidecar.begin_action(text, integer, jsonb, text, bigint, integer, text[], boolean) IS 'For the functions that act: checks arguments, and writes the entry of the audit.';

-- Whoever acts a hundred thousand times pushes out his own entries, and nobody else's; a portion that is rolled back pushes out none.
CREATE OR REPLACE FUNCTION embedsidecar.prune_audit() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DELETE FROM embedsidecar.audit_log AS a
WHERE  a.acted_at < now() - interval '400 days'
       OR a.audit_id IN (SELECT n.audit_id FROM (SELECT o.audit_id, row_number() OVER (PARTITION BY o.role_name ORDER BY o.audit_id DESC) AS number
                                                 FROM embedsidecar.audit_log AS o) AS n WHERE n.number > 100000)
$$;
COMMENT ON FUNCTION embedsidecar.prune_audit() IS 'For sidecars: takes away entries of the audit that are too old, or of a role that has so many newer ones.';

-- The log of a sidecar is where nobody who acts by SQL reaches. It has no keys of rows.
CREATE OR REPLACE FUNCTION embedsidecar.tell_audit() RETURNS TABLE (audit_id bigint, acted_at timestamptz, role text, said_by text, address text, application text,
    action text, pipeline text, arguments text, result text, changed bigint)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
UPDATE embedsidecar.audit_log AS a SET told = true
WHERE  a.audit_id IN (SELECT u.audit_id FROM embedsidecar.audit_log AS u WHERE NOT u.told ORDER BY u.audit_id LIMIT 1000 FOR UPDATE SKIP LOCKED)
RETURNING a.audit_id, a.acted_at, a.role_name::text, a.said_by, coalesce(host(a.client_addr), ''), a.application, a.action, coalesce(a.pipeline, ''),
          (a.arguments - 'keys')::text, a.result, a.changed
$$;
COMMENT ON FUNCTION embedsidecar.tell_audit() IS 'For sidecars: entries of the audit that are new, or have changed, for their logs.';

-- An action on rows that found none says so, as the command line and HTTP do.
CREATE OR REPLACE FUNCTION embedsidecar.end_action(entry bigint, result text, changed bigint, after_key text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
UPDATE embedsidecar.audit_log AS a
SET    result = CASE WHEN a.changed + end_action.changed = 0 AND a.action IN ('retry', 'discard', 'reembed', 'requeue', 'cancel', 'prioritise') THEN 'nothing_to_' || a.action
                     WHEN a.action = 'discard' THEN 'discarded' ELSE end_action.result END,
       changed = a.changed + end_action.changed, after_key = coalesce(end_action.after_key, a.after_key), finished_at = clock_timestamp(), told = false
WHERE  a.audit_id = entry
$$;
COMMENT ON FUNCTION embedsidecar.end_action(bigint, text, bigint, text) IS 'For the functions that act: adds to the entry of the audit what was done.';

CREATE OR REPLACE FUNCTION embedsidecar.switch(pipeline text, "on" boolean, dry_run boolean, said_by text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    id     integer := CASE WHEN switch.pipeline IS NOT NULL THEN embedsidecar.pipeline_meant(switch.pipeline) END;
    done   text := CASE WHEN switch."on" THEN 'resumed' ELSE 'paused' END;
    entry  embedsidecar.audit_log;
    result text := CASE WHEN switch."on" THEN 'already_on' ELSE 'already_paused' END;
    n      bigint;
BEGIN
    entry := embedsidecar.begin_action(CASE WHEN switch."on" THEN 'resume' ELSE 'pause' END, id, '{}', switch.said_by, NULL, 1, NULL, switch.dry_run);
    IF switch.dry_run THEN
        IF (CASE WHEN id IS NULL THEN EXISTS (SELECT FROM embedsidecar.installation AS i WHERE i.enabled <> switch."on")
                ELSE EXISTS (SELECT FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = id AND p.enabled <> switch."on") END) THEN
            result := 'would_be_' || done;
        END IF;
        RETURN result;
    END IF;
    IF id IS NULL THEN
        UPDATE embedsidecar.installation AS i SET enabled = switch."on" WHERE i.enabled <> switch."on";
    ELSE
        UPDATE embedsidecar.pipeline AS p SET enabled = switch."on" WHERE p.enabled <> switch."on" AND p.pipeline_id = id;
    END IF;
    GET DIAGNOSTICS n = ROW_COUNT;
    IF n > 0 THEN
        result := done;
    END IF;
    PERFORM embedsidecar.end_action(entry.audit_id, result, n, NULL);
    RETURN result;
END $$;
COMMENT ON FUNCTION embedsidecar.switch(text, boolean, boolean, text) IS 'What pause and resume do.';

CREATE OR REPLACE FUNCTION embedsidecar.pause(pipeline text DEFAULT NULL, dry_run boolean DEFAULT false, said_by text DEFAULT NULL) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ SELECT embedsidecar.switch(pipeline, false, dry_run, said_by) $$;
COMMENT ON FUNCTION embedsidecar.pause(text, boolean, text) IS 'Embed nothing of a pipeline until resume; changes are queued meanwhile. Without a name: of all, by the switch that is over them. Returns paused, already_paused or, with dry_run, would_be_paused.';

CREATE OR REPLACE FUNCTION embedsidecar.resume(pipeline text DEFAULT NULL, dry_run boolean DEFAULT false, said_by text DEFAULT NULL) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ SELECT embedsidecar.switch(pipeline, true, dry_run, said_by) $$;
COMMENT ON FUNCTION embedsidecar.resume(text, boolean, text) IS 'Take back pause. Without a name it turns the switch over all pipelines on; one that was paused by its name stays so. Returns resumed, already_on or, with dry_run, would_be_resumed.';

CREATE OR REPLACE FUNCTION embedsidecar.resume_for(pipeline text, "time" interval, dry_run boolean DEFAULT false, said_by text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    id    integer := embedsidecar.pipeline_meant(resume_for.pipeline);
    entry embedsidecar.audit_log;
    done  text := CASE WHEN resume_for."time" > '0' THEN 'resumed' ELSE 'back_to_its_hours' END;
BEGIN
    IF resume_for."time" IS NULL OR resume_for."time" < '0' OR resume_for."time" > '366 days' THEN
        RAISE EXCEPTION 'resume_for: time: expected 0 to 366 days, not %', coalesce(resume_for."time"::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'for good, change the hours of the pipeline in its configuration: active';
    END IF;
    entry := embedsidecar.begin_action('resume_for', id, jsonb_build_object('time', resume_for."time"), resume_for.said_by, NULL, 1, NULL, resume_for.dry_run);
    IF resume_for.dry_run THEN
        RETURN 'would_be_' || done;
    END IF;
    UPDATE embedsidecar.pipeline AS p
    SET    open_until = CASE WHEN resume_for."time" > '0' THEN now() + resume_for."time" END, enabled = p.enabled OR resume_for."time" > '0'
    WHERE  p.pipeline_id = id;
    PERFORM embedsidecar.end_action(entry.audit_id, done, 1, NULL);
    RETURN done;
END $$;
COMMENT ON FUNCTION embedsidecar.resume_for(text, interval, boolean, text) IS 'Have a pipeline work for so long from now on, whatever its hours are, and also if it is paused by its name; 0 ends that. Returns resumed, back_to_its_hours or, with dry_run, would_be_ and that.';

CREATE OR REPLACE FUNCTION embedsidecar.set_priority(pipeline text, priority text, dry_run boolean DEFAULT false, said_by text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    id     integer := embedsidecar.pipeline_meant(set_priority.pipeline);
    wanted integer := array_position(ARRAY['low', 'normal', 'high', 'urgent'], set_priority.priority) - 1;
    entry  embedsidecar.audit_log;
    n      bigint;
BEGIN
    IF wanted IS NULL THEN
        RAISE EXCEPTION 'set_priority: there is no priority "%"', left(coalesce(set_priority.priority, 'NULL'), 200)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'there are: low, normal, high, urgent';
    END IF;
    entry := embedsidecar.begin_action('set_priority', id, jsonb_build_object('priority', set_priority.priority), set_priority.said_by, NULL, 1, NULL, set_priority.dry_run);
    IF set_priority.dry_run THEN
        RETURN CASE WHEN EXISTS (SELECT FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = id AND p.lane <> wanted) THEN 'would_be_set' ELSE 'already_so' END;
    END IF;
    UPDATE embedsidecar.pipeline AS p SET lane = wanted WHERE p.pipeline_id = id AND p.lane <> wanted;
    GET DIAGNOSTICS n = ROW_COUNT;
    PERFORM embedsidecar.end_action(entry.audit_id, CASE WHEN n > 0 THEN 'set' ELSE 'already_so' END, n, NULL);
    RETURN CASE WHEN n > 0 THEN 'set' ELSE 'already_so' END;
END $$;
COMMENT ON FUNCTION embedsidecar.set_priority(text, text, boolean, text) IS 'The lane of a pipeline''s live changes from now on: low, normal, high or urgent. What waits keeps its lane. A configuration that says otherwise takes it back at the next run. Returns set, already_so or, with dry_run, would_be_set.';

-- A new place for each, in the order of the old ones: whoever leases has passed those in the lane that they come to.
CREATE OR REPLACE FUNCTION embedsidecar.prioritise(pipeline text, priority text, keys text[] DEFAULT NULL, max_rows integer DEFAULT 10000, dry_run boolean DEFAULT false,
    said_by text DEFAULT NULL, continues bigint DEFAULT NULL, OUT changed bigint, OUT remaining bigint, OUT audit_id bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    id     integer := embedsidecar.pipeline_meant(prioritise.pipeline);
    wanted integer := array_position(ARRAY['low', 'normal', 'high', 'urgent'], prioritise.priority) - 1;
    entry  embedsidecar.audit_log;
    until  bigint := 9223372036854775807;
    other  smallint;
    n      bigint;
BEGIN
    IF wanted IS NULL THEN
        RAISE EXCEPTION 'prioritise: there is no priority "%"', left(coalesce(prioritise.priority, 'NULL'), 200)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'there are: low, normal, high, urgent';
    END IF;
    changed := 0;
    entry := embedsidecar.begin_action('prioritise', id, jsonb_build_object('priority', prioritise.priority), prioritise.said_by, prioritise.continues,
        prioritise.max_rows, prioritise.keys, prioritise.dry_run);
    IF NOT prioritise.dry_run THEN
        until := entry.place;
        PERFORM set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') = 'off' THEN 'off' ELSE 'local' END, true);
        -- A lane and a state each: for several at once no index fits.
        FOREACH other IN ARRAY array_remove(ARRAY[0, 1, 2, 3], wanted) LOOP
            UPDATE embedsidecar.task AS t
            SET    lane = wanted, seq = s.seq
            FROM  (SELECT o.task_id, nextval('embedsidecar.task_seq') AS seq
                   FROM  (SELECT w.task_id FROM embedsidecar.task AS w
                          WHERE  w.pipeline_id = id AND w.state = 'todo' AND w.lane = other AND w.seq <= until
                                 AND (prioritise.keys IS NULL OR w.row_key = ANY (prioritise.keys))
                          ORDER BY w.seq LIMIT prioritise.max_rows - changed FOR UPDATE SKIP LOCKED) AS o) AS s
            WHERE  t.task_id = s.task_id;
            GET DIAGNOSTICS n = ROW_COUNT;
            changed := changed + n;
            UPDATE embedsidecar.task AS t
            SET    lane = wanted
            WHERE  t.task_id = ANY (ARRAY(
                       SELECT w.task_id FROM embedsidecar.task AS w
                       WHERE  w.pipeline_id = id AND w.state = 'retrying' AND w.lane = other AND (prioritise.keys IS NULL OR w.row_key = ANY (prioritise.keys))
                       LIMIT prioritise.max_rows - changed FOR UPDATE SKIP LOCKED));
            GET DIAGNOSTICS n = ROW_COUNT;
            changed := changed + n;
        END LOOP;
        audit_id := entry.audit_id;
        PERFORM embedsidecar.end_action(entry.audit_id, 'prioritised', changed, NULL);
    END IF;
    IF prioritise.continues IS NULL OR changed = 0 THEN
        remaining := (SELECT count(*) FROM embedsidecar.task AS w
                      WHERE  w.pipeline_id = id AND w.state = 'todo' AND w.lane <> wanted AND w.seq <= until AND (prioritise.keys IS NULL OR w.row_key = ANY (prioritise.keys)))
                   + (SELECT count(*) FROM embedsidecar.task AS w
                      WHERE  w.pipeline_id = id AND w.state = 'retrying' AND w.lane <> wanted AND (prioritise.keys IS NULL OR w.row_key = ANY (prioritise.keys)));
    END IF;
END $$;
COMMENT ON FUNCTION embedsidecar.prioritise(text, text, text[], integer, boolean, text, bigint) IS 'Give rows of a pipeline that wait another lane: these, or all; in portions. They keep their order, behind what waits there. What comes later has the lane that set_priority gives.';

-- put_aside is what cancel and discard_dead do: those of these states become cancelled. Who works on one finishes it, and what he did counts.
CREATE OR REPLACE FUNCTION embedsidecar.put_aside(action text, id integer, states text[], class text, code text, keys text[], older_than interval, max_rows integer,
    dry_run boolean, said_by text, continues bigint, OUT changed bigint, OUT remaining bigint, OUT audit_id bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    entry embedsidecar.audit_log;
    until bigint := 9223372036854775807;
    which text;
    n     bigint;
BEGIN
    changed := 0;
    remaining := 0;
    entry := embedsidecar.begin_action(put_aside.action, id, jsonb_build_object('class', put_aside.class, 'code', put_aside.code, 'older_than', put_aside.older_than),
        put_aside.said_by, put_aside.continues, put_aside.max_rows, put_aside.keys, put_aside.dry_run);
    IF NOT put_aside.dry_run THEN
        until := entry.place;
        PERFORM set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') = 'off' THEN 'off' ELSE 'local' END, true);
    END IF;
    FOREACH which IN ARRAY put_aside.states LOOP
        IF NOT put_aside.dry_run THEN
            UPDATE embedsidecar.task AS t
            SET    state = 'cancelled', waits_since = NULL, due_at = NULL
            WHERE  t.task_id = ANY (CASE which WHEN 'failed' THEN ARRAY(
                       SELECT w.task_id FROM embedsidecar.task AS w
                       WHERE  w.pipeline_id = id AND w.state = 'failed' AND w.seq <= until AND (put_aside.keys IS NULL OR w.row_key = ANY (put_aside.keys))
                              AND (put_aside.class IS NULL OR w.error_class = put_aside.class) AND (put_aside.code IS NULL OR w.error_code = put_aside.code)
                              AND (put_aside.older_than IS NULL OR w.committed_at < now() - put_aside.older_than)
                       LIMIT put_aside.max_rows - changed FOR UPDATE SKIP LOCKED)
                   ELSE ARRAY(
                       SELECT w.task_id FROM embedsidecar.task AS w
                       WHERE  w.pipeline_id = id AND w.state::text = which AND w.seq <= until AND w.row_key = ANY (put_aside.keys)
                       LIMIT put_aside.max_rows - changed FOR UPDATE SKIP LOCKED) END);
            GET DIAGNOSTICS n = ROW_COUNT;
            changed := changed + n;
        END IF;
        IF put_aside.continues IS NULL OR changed = 0 THEN
            remaining := remaining + CASE which WHEN 'failed' THEN
                   (SELECT count(*) FROM embedsidecar.task AS w
                    WHERE  w.pipeline_id = id AND w.state = 'failed' AND w.seq <= until AND (put_aside.keys IS NULL OR w.row_key = ANY (put_aside.keys))
                           AND (put_aside.class IS NULL OR w.error_class = put_aside.class) AND (put_aside.code IS NULL OR w.error_code = put_aside.code)
                           AND (put_aside.older_than IS NULL OR w.committed_at < now() - put_aside.older_than))
               ELSE (SELECT count(*) FROM embedsidecar.task AS w
                     WHERE  w.pipeline_id = id AND w.state::text = which AND w.seq <= until AND w.row_key = ANY (put_aside.keys)) END;
        END IF;
    END LOOP;
    IF NOT put_aside.dry_run THEN
        audit_id := entry.audit_id;
        PERFORM embedsidecar.end_action(entry.audit_id, 'cancelled', changed, NULL);
    END IF;
    IF put_aside.continues IS NOT NULL AND changed > 0 THEN
        remaining := NULL;
    END IF;
END $$;
COMMENT ON FUNCTION embedsidecar.put_aside(text, integer, text[], text, text, text[], interval, integer, boolean, text, bigint) IS 'What cancel and discard_dead do.';

-- Portions, each of which is a transaction: a call does up to max_rows and tells how many remain. Who goes on gives the audit_id that it returned
-- as continues; what remains is counted again only when nothing was left to do, and is NULL before.
CREATE OR REPLACE FUNCTION embedsidecar.retry_failed(pipeline text DEFAULT NULL, class text DEFAULT NULL, code text DEFAULT NULL, keys text[] DEFAULT NULL,
    older_than interval DEFAULT NULL, max_rows integer DEFAULT 10000, dry_run boolean DEFAULT false, said_by text DEFAULT NULL, continues bigint DEFAULT NULL,
    OUT changed bigint, OUT remaining bigint, OUT audit_id bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    id    integer := CASE WHEN retry_failed.pipeline IS NOT NULL THEN embedsidecar.pipeline_meant(retry_failed.pipeline) END;
    ids   integer[] := CASE WHEN id IS NULL THEN ARRAY(SELECT p.pipeline_id FROM embedsidecar.pipeline AS p) ELSE ARRAY[id] END;
    entry embedsidecar.audit_log;
    until bigint := 9223372036854775807;
    which text;
    n     bigint;
BEGIN
    changed := 0;
    entry := embedsidecar.begin_action('retry', id, jsonb_build_object('class', retry_failed.class, 'code', retry_failed.code, 'older_than', retry_failed.older_than),
        retry_failed.said_by, retry_failed.continues, retry_failed.max_rows, retry_failed.keys, retry_failed.dry_run);
    IF NOT retry_failed.dry_run THEN
        until := entry.place;
        PERFORM set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') = 'off' THEN 'off' ELSE 'local' END, true);
        -- As a change of the row would. The stream may want the same rows: nothing is locked in an order of its own, since nobody is waited for.
        FOREACH which IN ARRAY ARRAY['failed', 'retrying'] LOOP
            -- Named by their numbers, a state each: for both at once no index fits.
            UPDATE embedsidecar.task AS t
            SET    state = 'todo', seq = nextval('embedsidecar.task_seq'), attempt = 0, losses = 0, lost_leases = 0, waits_since = NULL, due_at = NULL,
                   error_class = NULL, error_code = NULL, error_message = NULL
            WHERE  t.task_id = ANY (CASE WHEN which = 'failed' THEN ARRAY(
                       SELECT w.task_id FROM embedsidecar.task AS w
                       WHERE  w.pipeline_id = ANY (ids) AND w.state = 'failed' AND w.seq <= until AND (retry_failed.keys IS NULL OR w.row_key = ANY (retry_failed.keys))
                              AND (retry_failed.class IS NULL OR w.error_class = retry_failed.class) AND (retry_failed.code IS NULL OR w.error_code = retry_failed.code)
                              AND (retry_failed.older_than IS NULL OR w.committed_at < now() - retry_failed.older_than)
                       LIMIT retry_failed.max_rows - changed FOR UPDATE SKIP LOCKED)
                   ELSE ARRAY(
                       SELECT w.task_id FROM embedsidecar.task AS w
                       WHERE  w.pipeline_id = ANY (ids) AND w.state = 'retrying' AND w.seq <= until AND (retry_failed.keys IS NULL OR w.row_key = ANY (retry_failed.keys))
                              AND (retry_failed.class IS NULL OR w.error_class = retry_failed.class) AND (retry_failed.code IS NULL OR w.error_code = retry_failed.code)
                              AND (retry_failed.older_than IS NULL OR w.committed_at < now() - retry_failed.older_than)
                       LIMIT retry_failed.max_rows - changed FOR UPDATE SKIP LOCKED) END);
            GET DIAGNOSTICS n = ROW_COUNT;
            changed := changed + n;
        END LOOP;
        audit_id := entry.audit_id;
        PERFORM embedsidecar.end_action(entry.audit_id, 'retried', changed, NULL);
    END IF;
    IF retry_failed.continues IS NULL OR changed = 0 THEN
        remaining := (SELECT count(*) FROM embedsidecar.task AS w
                      WHERE  w.pipeline_id = ANY (ids) AND w.state = 'failed' AND w.seq <= until AND (retry_failed.keys IS NULL OR w.row_key = ANY (retry_failed.keys))
                             AND (retry_failed.class IS NULL OR w.error_class = retry_failed.class) AND (retry_failed.code IS NULL OR w.error_code = retry_failed.code)
                             AND (retry_failed.older_than IS NULL OR w.committed_at < now() - retry_failed.older_than))
                   + (SELECT count(*) FROM embedsidecar.task AS w
                      WHERE  w.pipeline_id = ANY (ids) AND w.state = 'retrying' AND w.seq <= until AND (retry_failed.keys IS NULL OR w.row_key = ANY (retry_failed.keys))
                             AND (retry_failed.class IS NULL OR w.error_class = retry_failed.class) AND (retry_failed.code IS NULL OR w.error_code = retry_failed.code)
                             AND (retry_failed.older_than IS NULL OR w.committed_at < now() - retry_failed.older_than));
    END IF;
END $$;
COMMENT ON FUNCTION embedsidecar.retry_failed(text, text, text, text[], interval, integer, boolean, text, bigint) IS 'Try dead letters again at once, and rows that wait for another try: those of a pipeline or of all, of an error class and code, of these keys, whose change is older than so long. Does max_rows at most and says how many remain; with dry_run it only counts these.';

CREATE OR REPLACE FUNCTION embedsidecar.cancel(pipeline text, keys text[], max_rows integer DEFAULT 10000, dry_run boolean DEFAULT false, said_by text DEFAULT NULL,
    continues bigint DEFAULT NULL, OUT changed bigint, OUT remaining bigint, OUT audit_id bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF coalesce(cardinality(cancel.keys), 0) = 0 THEN
        RAISE EXCEPTION 'cancel: name the rows by their keys' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'for all of a pipeline there is embedsidecar.pause; for its dead letters embedsidecar.discard_dead';
    END IF;
    SELECT p.changed, p.remaining, p.audit_id INTO changed, remaining, audit_id
    FROM   embedsidecar.put_aside('cancel', embedsidecar.pipeline_meant(cancel.pipeline), ARRAY['todo', 'retrying', 'failed'], NULL, NULL, cancel.keys, NULL,
               cancel.max_rows, cancel.dry_run, cancel.said_by, cancel.continues) AS p;
END $$;
COMMENT ON FUNCTION embedsidecar.cancel(text, text[], integer, boolean, text, bigint) IS 'Take rows out of the queue: they are cancelled, which status, tasks, explain and wait tell, until they change, a scan finds that they differ, or somebody requeues them. What is being embedded at this moment is finished.';

CREATE OR REPLACE FUNCTION embedsidecar.discard_dead(pipeline text, class text DEFAULT NULL, code text DEFAULT NULL, keys text[] DEFAULT NULL, older_than interval DEFAULT NULL,
    max_rows integer DEFAULT 10000, dry_run boolean DEFAULT false, said_by text DEFAULT NULL, continues bigint DEFAULT NULL,
    OUT changed bigint, OUT remaining bigint, OUT audit_id bigint)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT p.changed, p.remaining, p.audit_id
FROM   embedsidecar.put_aside('discard', embedsidecar.pipeline_meant(pipeline), ARRAY['failed'], class, code, keys, older_than, max_rows, dry_run, said_by, continues) AS p
$$;
COMMENT ON FUNCTION embedsidecar.discard_dead(text, text, text, text[], interval, integer, boolean, text, bigint) IS 'Put dead letters away: they become cancelled, with their error, and count as that instead of as failed. They still have no vector of their text, so they are known as such until they change or somebody requeues them.';

-- add_looks has rows looked at at once, whatever became of them. It is the last that touches tasks in its transaction: the stream waits for who
-- holds them. 3 is the first normal transaction id there is, and how old a change is that the look may find nobody knows.
CREATE OR REPLACE FUNCTION embedsidecar.add_looks(id integer, keys text[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    n bigint;
BEGIN
    PERFORM set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') = 'off' THEN 'off' ELSE 'local' END, true);
    INSERT INTO embedsidecar.task AS t (pipeline_id, row_key, lane, xid, first_lsn, last_lsn, committed_at)
    SELECT id, k.row_key, (SELECT p.lane FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = id), '3'::xid8, '0/0'::pg_lsn, pg_current_wal_flush_lsn(), now()
    FROM  (SELECT DISTINCT u.row_key COLLATE "C" AS row_key FROM unnest(add_looks.keys) AS u (row_key)) AS k
    ORDER BY k.row_key -- everybody locks tasks in this order
    ON CONFLICT (row_key, pipeline_id) DO UPDATE SET
        gen           = t.gen + 1,
        first_lsn     = least(t.first_lsn, excluded.first_lsn),
        next_lsn      = least(t.next_lsn, excluded.first_lsn),
        next_committed_at = coalesce(t.next_committed_at, excluded.committed_at),
        seq           = CASE WHEN t.state = 'todo' THEN t.seq ELSE excluded.seq END,
        state         = 'todo',
        waits_since   = NULL,
        due_at        = NULL,
        attempt       = 0,
        losses        = CASE WHEN t.state = 'todo' THEN t.losses ELSE 0 END, -- somebody may hold it: what becomes of him is not known
        lost_leases   = CASE WHEN t.state = 'todo' THEN t.lost_leases ELSE 0 END,
        error_class   = NULL,
        error_code    = NULL,
        error_message = NULL;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;
COMMENT ON FUNCTION embedsidecar.add_looks(integer, text[]) IS 'What requeue and reembed do.';

CREATE OR REPLACE FUNCTION embedsidecar.requeue(pipeline text, keys text[] DEFAULT NULL, max_rows integer DEFAULT 10000, dry_run boolean DEFAULT false, said_by text DEFAULT NULL,
    continues bigint DEFAULT NULL, OUT changed bigint, OUT remaining bigint, OUT audit_id bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    id    integer := embedsidecar.pipeline_meant(requeue.pipeline);
    entry embedsidecar.audit_log;
    until bigint := 9223372036854775807;
BEGIN
    changed := 0;
    entry := embedsidecar.begin_action('requeue', id, '{}', requeue.said_by, requeue.continues, requeue.max_rows, requeue.keys, requeue.dry_run);
    IF cardinality(requeue.keys) > requeue.max_rows THEN
        RAISE EXCEPTION 'requeue: % keys are more than max_rows, which is %', cardinality(requeue.keys), requeue.max_rows USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF requeue.dry_run THEN
        remaining := CASE WHEN requeue.keys IS NOT NULL THEN (SELECT count(DISTINCT k) FROM unnest(requeue.keys) AS k)
                     ELSE (SELECT count(*) FROM embedsidecar.task AS w WHERE w.pipeline_id = id AND w.state = 'cancelled') END;
        RETURN;
    END IF;
    until := entry.place;
    changed := embedsidecar.add_looks(id, coalesce(requeue.keys, ARRAY(
        SELECT w.row_key FROM embedsidecar.task AS w WHERE w.pipeline_id = id AND w.state = 'cancelled' AND w.seq <= until LIMIT requeue.max_rows)));
    audit_id := entry.audit_id;
    PERFORM embedsidecar.end_action(entry.audit_id, 'requeued', changed, NULL);
    IF requeue.keys IS NOT NULL THEN
        remaining := 0;
    ELSIF requeue.continues IS NULL OR changed = 0 THEN
        remaining := (SELECT count(*) FROM embedsidecar.task AS w WHERE w.pipeline_id = id AND w.state = 'cancelled' AND w.seq <= until);
    END IF;
END $$;
COMMENT ON FUNCTION embedsidecar.requeue(text, text[], integer, boolean, text, bigint) IS 'Have rows looked at again, whatever became of them; without keys those that are cancelled. A look at a row that needs nothing embeds nothing: reembed does.';

CREATE OR REPLACE FUNCTION embedsidecar.ask_for_scan(id integer, reason text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
INSERT INTO embedsidecar.scan AS s (pipeline_id, reason, barrier) VALUES (id, ask_for_scan.reason, pg_current_xact_id())
ON CONFLICT (pipeline_id) DO UPDATE SET
    reason = CASE WHEN s.phase = 'waiting' THEN s.reason ELSE excluded.reason END, barrier = greatest(s.barrier, excluded.barrier), requested = s.requested + 1,
    partitions = NULL, lost = true, requested_at = now(), phase = CASE WHEN s.phase = 'done' THEN 'waiting' ELSE s.phase END
$$;
COMMENT ON FUNCTION embedsidecar.ask_for_scan(integer, text) IS 'What backfill and reembed do: every row is compared with what was written for it.';

-- backfill is the verb for a look at every row, and rescan its other name.
CREATE OR REPLACE FUNCTION embedsidecar.backfill(pipeline text, dry_run boolean DEFAULT false, said_by text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    id    integer := embedsidecar.pipeline_meant(backfill.pipeline);
    entry embedsidecar.audit_log := embedsidecar.begin_action('backfill', id, '{}', backfill.said_by, NULL, 1, NULL, backfill.dry_run);
BEGIN
    IF backfill.dry_run THEN
        RETURN 'scan_would_be_requested';
    END IF;
    PERFORM embedsidecar.ask_for_scan(id, 'asked for');
    PERFORM embedsidecar.end_action(entry.audit_id, 'scan_requested', 0, NULL);
    RETURN 'scan_requested';
END $$;
COMMENT ON FUNCTION embedsidecar.backfill(text, boolean, text) IS 'Have every row of a pipeline looked at now; those that have no vector of their text as it is are embedded, and no others. Returns scan_requested or, with dry_run, scan_would_be_requested.';

CREATE OR REPLACE FUNCTION embedsidecar.rescan(pipeline text, dry_run boolean DEFAULT false, said_by text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN embedsidecar.backfill(rescan.pipeline, rescan.dry_run, rescan.said_by);
END $$;
COMMENT ON FUNCTION embedsidecar.rescan(text, boolean, text) IS 'The other name of backfill, which is what the audit calls it.';

CREATE OR REPLACE FUNCTION embedsidecar.reembed(pipeline text, keys text[] DEFAULT NULL, max_rows integer DEFAULT 10000, dry_run boolean DEFAULT false, said_by text DEFAULT NULL,
    continues bigint DEFAULT NULL, OUT changed bigint, OUT remaining bigint, OUT audit_id bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    id    integer := embedsidecar.pipeline_meant(reembed.pipeline);
    entry embedsidecar.audit_log;
    last  text;
BEGIN
    changed := 0;
    entry := embedsidecar.begin_action('reembed', id, '{}', reembed.said_by, reembed.continues, reembed.max_rows, reembed.keys, reembed.dry_run);
    IF cardinality(reembed.keys) > reembed.max_rows THEN
        RAISE EXCEPTION 'reembed: % keys are more than max_rows, which is %', cardinality(reembed.keys), reembed.max_rows USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF reembed.dry_run THEN
        remaining := (SELECT count(*) FROM embedsidecar.ledger AS l
                      WHERE l.pipeline_id = id AND l.text_hash IS NOT NULL AND (reembed.keys IS NULL OR l.row_key = ANY (reembed.keys)));
        RETURN;
    END IF;
    -- An entry whose vector has no hash fits no vector, and whoever looks at its row reuses none.
    WITH marked AS (
        UPDATE embedsidecar.ledger AS l
        SET    text_hash = NULL, vector_hash = ''
        WHERE  l.pipeline_id = id AND l.row_key = ANY (ARRAY(
            SELECT w.row_key FROM embedsidecar.ledger AS w
            WHERE  w.pipeline_id = id AND w.row_key > entry.after_key AND w.text_hash IS NOT NULL AND (reembed.keys IS NULL OR w.row_key = ANY (reembed.keys))
            ORDER BY w.row_key LIMIT reembed.max_rows))
        RETURNING l.row_key)
    SELECT count(*), max(m.row_key) INTO changed, last FROM marked AS m;
    audit_id := entry.audit_id;
    IF reembed.keys IS NULL THEN
        -- With each portion: whoever stops after this one has what it marked embedded all the same.
        PERFORM embedsidecar.ask_for_scan(id, 'every row is embedded anew, as asked for');
        IF NOT EXISTS (SELECT FROM embedsidecar.ledger AS l
                       WHERE l.pipeline_id = id AND l.text_hash IS NOT NULL AND l.row_key > last) THEN
            remaining := 0;
        ELSIF reembed.continues IS NULL THEN
            remaining := (SELECT count(*) FROM embedsidecar.ledger AS l WHERE l.pipeline_id = id AND l.text_hash IS NOT NULL AND l.row_key > last);
        END IF;
    END IF;
    PERFORM embedsidecar.end_action(entry.audit_id, 'reembed_requested', changed, last);
    IF reembed.keys IS NOT NULL THEN
        remaining := 0;
        PERFORM embedsidecar.add_looks(id, reembed.keys);
    END IF;
END $$;
COMMENT ON FUNCTION embedsidecar.reembed(text, text[], integer, boolean, text, bigint) IS 'Have rows embedded anew though their texts are what they were: these, or every row of the pipeline, in portions; each portion requests the scan that finds them. The vectors stay until the new ones come.';

-- That a plugin was reloaded is done by no statement: the sidecar that did it says so.
CREATE OR REPLACE FUNCTION embedsidecar.note_reload(plugin text, model text, version text, result text, said_by text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    entry embedsidecar.audit_log;
BEGIN
    IF note_reload.result IS NULL OR note_reload.result NOT IN ('reloaded', 'refused') THEN
        RAISE EXCEPTION 'note_reload: result: expected reloaded or refused, not %', coalesce(note_reload.result, 'NULL') USING ERRCODE = 'invalid_parameter_value';
    END IF;
    entry := embedsidecar.begin_action('reload', NULL, jsonb_build_object('plugin', left(note_reload.plugin, 200), 'model', left(note_reload.model, 200),
        'version', left(note_reload.version, 200)), note_reload.said_by, NULL, 1, NULL, false);
    PERFORM embedsidecar.end_action(entry.audit_id, note_reload.result, 0, NULL);
    RETURN entry.audit_id;
END $$;
COMMENT ON FUNCTION embedsidecar.note_reload(text, text, text, text, text) IS 'For sidecars: writes into the audit that a plugin was reloaded, or refused to be.';
