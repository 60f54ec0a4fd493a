-- What a person on call sees and does by SQL: an audit, functions that act, views that show. Docs: docs/sql.md.
-- One implementation of each action is here; the command line calls it. Roles that may use any of it are made by roles.sql.

-- Who did what. Kept to the newest 100,000 entries.
CREATE TABLE embedsidecar.audit_log (
    audit_id    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    acted_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    role_name   name        NOT NULL DEFAULT session_user,
    said_by     text        NOT NULL DEFAULT '',
    client_addr inet        DEFAULT inet_client_addr(),
    application text        NOT NULL DEFAULT current_setting('application_name'),
    action      text        NOT NULL,
    pipeline    text,
    arguments   jsonb       NOT NULL DEFAULT '{}',
    result      text        NOT NULL DEFAULT '',
    changed     bigint      NOT NULL DEFAULT 0,
    finished_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    place       bigint      NOT NULL DEFAULT 0,
    after_key   text        COLLATE "C" NOT NULL DEFAULT ''
);
COMMENT ON TABLE embedsidecar.audit_log IS 'Who had what done to which pipeline, the newest 100,000 entries. An action that is done in portions has one.';
COMMENT ON COLUMN embedsidecar.audit_log.said_by IS 'Who the program that acted says it was asked by; nobody proves it.';
COMMENT ON COLUMN embedsidecar.audit_log.pipeline IS 'Its name; NULL: all of them.';
COMMENT ON COLUMN embedsidecar.audit_log.finished_at IS 'When the last portion so far was done.';
COMMENT ON COLUMN embedsidecar.audit_log.place IS 'Of the queue when the action began: what got a place since is left alone by its further portions.';
COMMENT ON COLUMN embedsidecar.audit_log.after_key IS 'Where the next portion begins.';

-- A row that somebody has taken out of the queue, or a dead letter that he has put away: it is told, not tried.
ALTER TABLE embedsidecar.task
    DROP CONSTRAINT task_state_check,
    ADD CONSTRAINT task_state_check CHECK (state IN ('todo', 'retrying', 'failed', 'cancelled'));
COMMENT ON TYPE embedsidecar.task_state IS 'What a task is stored as: todo, retrying, failed or cancelled. Nothing is in_progress any more, leases are rows of their own.';
CREATE INDEX task_cancelled_idx ON embedsidecar.task (pipeline_id) WHERE state = 'cancelled';

-- Functions. All look for names in pg_catalog alone. Those that act run as the schema's owner: nobody else needs a right to a table.

CREATE FUNCTION embedsidecar.pipeline_meant(pipeline text) RETURNS integer
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
        HINT = coalesce('there are: ' || (SELECT string_agg(n.name, ', ') FROM (SELECT p.name FROM embedsidecar.pipeline AS p ORDER BY p.name LIMIT 20) AS n),
                        'none is set up in this database: embedsidecar init sets them up');
END $$;
COMMENT ON FUNCTION embedsidecar.pipeline_meant(text) IS 'The number of the pipeline of this name, or of the only one that is named after a table of this name; an error when there is none.';

-- begin_action checks what every action is given, and writes its entry of the audit, without which a dry run does; a further portion goes on with
-- the one that began it.
CREATE FUNCTION embedsidecar.begin_action(action text, pipeline_id integer, arguments jsonb, said_by text, continues bigint, max_rows integer, keys text[], dry_run boolean)
RETURNS embedsidecar.audit_log
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    entry embedsidecar.audit_log;
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
    IF begin_action.continues IS NOT NULL THEN
        SELECT a.* INTO entry FROM embedsidecar.audit_log AS a
        WHERE  a.audit_id = begin_action.continues AND a.action = begin_action.action AND a.role_name = session_user
               AND a.arguments ->> 'pipeline_id' IS NOT DISTINCT FROM begin_action.pipeline_id::text
        FOR UPDATE;
        IF entry.audit_id IS NULL THEN
            RAISE EXCEPTION '%: continues: no action % of yours is % on this pipeline', begin_action.action, begin_action.continues, begin_action.action
                USING ERRCODE = 'invalid_parameter_value', HINT = 'continues is the audit_id that the first portion returned';
        END IF;
        RETURN entry;
    END IF;
    INSERT INTO embedsidecar.audit_log AS a (action, pipeline, arguments, said_by, place)
    SELECT begin_action.action, (SELECT p.name FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = begin_action.pipeline_id),
           jsonb_strip_nulls(jsonb_build_object('pipeline_id', begin_action.pipeline_id::text,
               'keys', to_jsonb(begin_action.keys[1:100]), 'keys_given', cardinality(begin_action.keys)) || begin_action.arguments),
           coalesce(left(begin_action.said_by, 200), ''), coalesce(pg_sequence_last_value('embedsidecar.task_seq'::regclass), 0)
    RETURNING a.* INTO entry;
    DELETE FROM embedsidecar.audit_log AS a WHERE a.audit_id <= entry.audit_id - 100000;
    RETURN entry;
END $$;
COMMENT ON FUNCTION embedsidecar.begin_action(text, integer, jsonb, text, bigint, integer, text[], boolean) IS 'For the functions that act: checks arguments, and writes the entry of the audit.';

CREATE FUNCTION embedsidecar.end_action(entry bigint, result text, changed bigint, after_key text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
UPDATE embedsidecar.audit_log AS a
SET    result = end_action.result, changed = a.changed + end_action.changed, after_key = coalesce(end_action.after_key, a.after_key), finished_at = clock_timestamp()
WHERE  a.audit_id = entry
$$;
COMMENT ON FUNCTION embedsidecar.end_action(bigint, text, bigint, text) IS 'For the functions that act: adds to the entry of the audit what was done.';

CREATE FUNCTION embedsidecar.switch(pipeline text, "on" boolean, dry_run boolean, said_by text) RETURNS text
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

CREATE FUNCTION embedsidecar.pause(pipeline text DEFAULT NULL, dry_run boolean DEFAULT false, said_by text DEFAULT NULL) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ SELECT embedsidecar.switch(pipeline, false, dry_run, said_by) $$;
COMMENT ON FUNCTION embedsidecar.pause(text, boolean, text) IS 'Embed nothing of a pipeline until resume; changes are queued meanwhile. Without a name: of all, by the switch that is over them. Returns paused, already_paused or, with dry_run, would_be_paused.';

CREATE FUNCTION embedsidecar.resume(pipeline text DEFAULT NULL, dry_run boolean DEFAULT false, said_by text DEFAULT NULL) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ SELECT embedsidecar.switch(pipeline, true, dry_run, said_by) $$;
COMMENT ON FUNCTION embedsidecar.resume(text, boolean, text) IS 'Take back pause. Without a name it turns the switch over all pipelines on; one that was paused by its name stays so. Returns resumed, already_on or, with dry_run, would_be_resumed.';

CREATE FUNCTION embedsidecar.set_priority(pipeline text, priority text, dry_run boolean DEFAULT false, said_by text DEFAULT NULL) RETURNS text
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

-- Portions, each of which is a transaction: a call does up to max_rows and tells how many remain. Who goes on gives the audit_id that it returned
-- as continues; what remains is counted again only when nothing was left to do, and is NULL before.

CREATE FUNCTION embedsidecar.retry_failed(pipeline text DEFAULT NULL, class text DEFAULT NULL, code text DEFAULT NULL, keys text[] DEFAULT NULL,
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

-- put_aside is what cancel and discard_dead do: those of these states become cancelled. Who works on one finishes it, and what he did counts.
CREATE FUNCTION embedsidecar.put_aside(action text, id integer, states text[], class text, code text, keys text[], older_than interval, max_rows integer,
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

CREATE FUNCTION embedsidecar.cancel(pipeline text, keys text[], max_rows integer DEFAULT 10000, dry_run boolean DEFAULT false, said_by text DEFAULT NULL,
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

CREATE FUNCTION embedsidecar.discard_dead(pipeline text, class text DEFAULT NULL, code text DEFAULT NULL, keys text[] DEFAULT NULL, older_than interval DEFAULT NULL,
    max_rows integer DEFAULT 10000, dry_run boolean DEFAULT false, said_by text DEFAULT NULL, continues bigint DEFAULT NULL,
    OUT changed bigint, OUT remaining bigint, OUT audit_id bigint)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT p.changed, p.remaining, p.audit_id
FROM   embedsidecar.put_aside('discard', embedsidecar.pipeline_meant(pipeline), ARRAY['failed'], class, code, keys, older_than, max_rows, dry_run, said_by, continues) AS p
$$;
COMMENT ON FUNCTION embedsidecar.discard_dead(text, text, text, text[], interval, integer, boolean, text, bigint) IS 'Put dead letters away: they become cancelled, with their error, and count as that instead of as failed. They still have no vector of their text, so they are known as such until they change or somebody requeues them.';

-- add_looks has rows looked at at once, whatever became of them. It is the last that touches tasks in its transaction: the stream waits for who
-- holds them. 3 is the first normal transaction id there is, and how old a change is that the look may find nobody knows.
CREATE FUNCTION embedsidecar.add_looks(id integer, keys text[]) RETURNS bigint
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

CREATE FUNCTION embedsidecar.requeue(pipeline text, keys text[] DEFAULT NULL, max_rows integer DEFAULT 10000, dry_run boolean DEFAULT false, said_by text DEFAULT NULL,
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

CREATE FUNCTION embedsidecar.ask_for_scan(id integer, reason text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
INSERT INTO embedsidecar.scan AS s (pipeline_id, reason, barrier) VALUES (id, ask_for_scan.reason, pg_current_xact_id())
ON CONFLICT (pipeline_id) DO UPDATE SET
    reason = CASE WHEN s.phase = 'waiting' THEN s.reason ELSE excluded.reason END, barrier = greatest(s.barrier, excluded.barrier), requested = s.requested + 1,
    requested_at = now(), phase = CASE WHEN s.phase = 'done' THEN 'waiting' ELSE s.phase END
$$;
COMMENT ON FUNCTION embedsidecar.ask_for_scan(integer, text) IS 'What rescan and reembed do: every row is compared with what was written for it.';

CREATE FUNCTION embedsidecar.rescan(pipeline text, dry_run boolean DEFAULT false, said_by text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    id    integer := embedsidecar.pipeline_meant(rescan.pipeline);
    entry embedsidecar.audit_log := embedsidecar.begin_action('rescan', id, '{}', rescan.said_by, NULL, 1, NULL, rescan.dry_run);
BEGIN
    IF rescan.dry_run THEN
        RETURN 'scan_would_be_requested';
    END IF;
    PERFORM embedsidecar.ask_for_scan(id, 'asked for');
    PERFORM embedsidecar.end_action(entry.audit_id, 'scan_requested', 0, NULL);
    RETURN 'scan_requested';
END $$;
COMMENT ON FUNCTION embedsidecar.rescan(text, boolean, text) IS 'Have every row of a pipeline compared with what was written for it; only those that differ are embedded. Returns scan_requested or, with dry_run, scan_would_be_requested.';

CREATE FUNCTION embedsidecar.reembed(pipeline text, keys text[] DEFAULT NULL, max_rows integer DEFAULT 10000, dry_run boolean DEFAULT false, said_by text DEFAULT NULL,
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
        IF NOT EXISTS (SELECT FROM embedsidecar.ledger AS l WHERE l.pipeline_id = id AND l.text_hash IS NOT NULL AND l.row_key > last) THEN
            remaining := 0; -- all are marked: a scan finds them, and keeps a bounded number of tasks open
            PERFORM embedsidecar.ask_for_scan(id, 'every row is embedded anew, as asked for');
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
COMMENT ON FUNCTION embedsidecar.reembed(text, text[], integer, boolean, text, bigint) IS 'Have rows embedded anew though their texts are what they were: these, or every row of the pipeline, in portions; the last of these, after which none remain, asks for the scan that finds them. The vectors stay until the new ones come.';

-- How far everything is.

CREATE FUNCTION embedsidecar.backlog(pipeline text DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    ids integer[] := CASE WHEN backlog.pipeline IS NULL THEN ARRAY(SELECT p.pipeline_id FROM embedsidecar.pipeline AS p)
                          ELSE ARRAY[embedsidecar.pipeline_meant(backlog.pipeline)] END;
BEGIN
    RETURN (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'todo' AND t.pipeline_id = ANY (ids) LIMIT 1000000) AS c)
         + (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'retrying' AND t.pipeline_id = ANY (ids) LIMIT 1000000) AS c);
END $$;
COMMENT ON FUNCTION embedsidecar.backlog(text) IS 'How many rows wait, are being embedded or wait for another try, of a pipeline or of all; each kind is counted up to a million. For autoscalers.';

CREATE FUNCTION embedsidecar.waited_for(pipeline text) RETURNS integer[]
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    ids integer[] := CASE WHEN waited_for.pipeline IS NULL THEN ARRAY(SELECT p.pipeline_id FROM embedsidecar.pipeline AS p)
                          ELSE ARRAY[embedsidecar.pipeline_meant(waited_for.pipeline)] END;
BEGIN
    IF cardinality(ids) = 0 THEN
        RAISE EXCEPTION 'no pipeline is set up in this database' USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'embedsidecar init sets them up';
    END IF;
    RETURN ids;
END $$;
COMMENT ON FUNCTION embedsidecar.waited_for(text) IS 'The pipelines that caught_up, wait_for and wait_until are about.';

-- how_far: of these pipelines, with everything before an LSN. A checkpoint of another server, which came along with a dump, says nothing of this
-- one. A pipeline that the streamer does not know as it is now may have changes that pass unseen.
CREATE FUNCTION embedsidecar.how_far(ids integer[], lsn pg_lsn, OUT decoded boolean, OUT done boolean, OUT resting text, OUT left_over text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    waits  boolean;
    scans  boolean;
    routed boolean;
BEGIN
    SELECT bool_and(c.lsn >= how_far.lsn AND c.system_id = (SELECT s.system_identifier::text FROM pg_control_system() AS s)),
           bool_and(EXISTS (SELECT FROM embedsidecar.route AS r WHERE r.pipeline_id = p.pipeline_id AND r.generation = p.generation)),
           bool_or(EXISTS (SELECT FROM embedsidecar.scan AS s WHERE s.pipeline_id = p.pipeline_id AND s.phase <> 'done')),
           string_agg(format('%s is %s', p.name, CASE WHEN i.enabled AND p.enabled THEN p.status ELSE 'paused' END), ', ' ORDER BY p.name)
               FILTER (WHERE NOT (i.enabled AND p.enabled AND p.status = 'active'))
    INTO   decoded, routed, scans, resting
    FROM   embedsidecar.pipeline AS p CROSS JOIN embedsidecar.installation AS i JOIN embedsidecar.lsn_checkpoint AS c ON c.slot_name = p.slot_name
    WHERE  p.pipeline_id = ANY (how_far.ids);
    -- In a statement of its own, which sees what became a task before the checkpoint that was just read.
    waits := EXISTS (SELECT FROM embedsidecar.task AS t WHERE t.state IN ('todo', 'retrying') AND t.pipeline_id = ANY (how_far.ids) AND t.first_lsn <= how_far.lsn);
    done := coalesce(decoded AND routed AND NOT scans AND NOT waits AND resting IS NULL, false);
    left_over := concat_ws(', ', CASE WHEN NOT decoded THEN 'changes are not read from the slot yet' END, CASE WHEN NOT routed THEN 'the streamer does not know a pipeline yet' END,
        CASE WHEN scans THEN 'a scan is not over' END, CASE WHEN waits THEN 'rows are left to embed' END, resting);
END $$;
COMMENT ON FUNCTION embedsidecar.how_far(integer[], pg_lsn) IS 'What caught_up, wait_for and wait_until ask.';

CREATE FUNCTION embedsidecar.caught_up(lsn pg_lsn DEFAULT NULL, pipeline text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (SELECT h.done FROM embedsidecar.how_far(embedsidecar.waited_for(caught_up.pipeline),
        coalesce(caught_up.lsn, CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END)) AS h);
END $$;
COMMENT ON FUNCTION embedsidecar.caught_up(pg_lsn, text) IS 'Whether every row that was committed before an LSN (without one: until now) has its vector, of a pipeline or of all. Dead letters and cancelled rows are not waited for: embedsidecar.tasks has them. A pipeline that is paused or cannot work is never caught up. An idle streamer says late how far it is: embedsidecar.wait_for asks it.';

CREATE FUNCTION embedsidecar.wait_for(lsn pg_lsn DEFAULT NULL, timeout interval DEFAULT '5s', pipeline text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ids    integer[];
    target pg_lsn;
    state  record;
    began  timestamptz := clock_timestamp();
    looked timestamptz;
    asked  timestamptz := '-infinity';
    again  interval := '50 ms';
    pause  double precision := 0.001;
BEGIN
    IF wait_for.timeout IS NULL OR wait_for.timeout < '0' OR wait_for.timeout > '1 hour' THEN
        RAISE EXCEPTION 'wait_for: timeout: expected 0 to 1 hour, not %', coalesce(wait_for.timeout::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'a transaction that waits keeps dead rows from being cleaned up: embedsidecar wait waits without one';
    END IF;
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'wait_for: this server is a standby, which cannot ask the streamer'
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'wait on the primary; embedsidecar.caught_up(lsn) tells here whether the vectors have arrived';
    END IF;
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'wait_for: a transaction that is % never sees what happens while it waits', upper(current_setting('transaction_isolation'))
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'call it in a transaction that is READ COMMITTED';
    END IF;
    ids := embedsidecar.waited_for(wait_for.pipeline);
    -- What is committed for good is flushed. One that does not wait for that is covered where the message below is flushed.
    target := coalesce(wait_for.lsn, CASE WHEN current_setting('server_version_num')::integer >= 170000 THEN pg_current_wal_insert_lsn() ELSE pg_current_wal_flush_lsn() END);
    LOOP
        looked := clock_timestamp();
        SELECT h.* INTO state FROM embedsidecar.how_far(ids, target) AS h;
        IF state.done THEN
            RETURN true;
        END IF;
        IF state.resting IS NOT NULL THEN
            RAISE NOTICE 'not waited for: %', state.resting USING HINT = 'embedsidecar.status tells more; embedsidecar.resume lets a paused one go on';
            RETURN false;
        END IF;
        IF clock_timestamp() >= began + wait_for.timeout THEN
            RAISE NOTICE 'not caught up with % in time: %', target, state.left_over;
            RETURN false;
        END IF;
        -- An idle streamer stores its position late. This message comes to it through the slot, outside of any transaction: who has called may
        -- hold one open, so that a NOTIFY would not be sent. Before 17 the message waits in memory until anybody commits.
        IF NOT state.decoded AND looked >= asked + again THEN
            asked := looked;
            again := least(2 * again, '1 s');
            IF current_setting('server_version_num')::integer >= 170000 THEN
                EXECUTE $q$SELECT pg_logical_emit_message(false, 'embedsidecar.wait', '', true)$q$;
            ELSE
                PERFORM pg_logical_emit_message(false, 'embedsidecar.wait', '');
            END IF;
        END IF;
        PERFORM pg_sleep(least(greatest(pause, 2 * extract(epoch FROM clock_timestamp() - looked)), extract(epoch FROM began + wait_for.timeout - clock_timestamp())));
        pause := least(1.5 * pause, 0.25);
    END LOOP;
END $$;
COMMENT ON FUNCTION embedsidecar.wait_for(pg_lsn, interval, text) IS 'Read your own write: wait until every row that was committed before an LSN (without one: until now) has its vector, of a pipeline or of all. Returns false when the time is over, or at once where a pipeline is paused or cannot work; a notice says why. Dead letters and cancelled rows are not waited for. Called after the commit, in READ COMMITTED, on the primary. Before PostgreSQL 17 an idle server answers late; CALL embedsidecar.wait_until does not.';

-- With the invoker's rights: a procedure with those of its owner may not commit.
CREATE PROCEDURE embedsidecar.wait_until(lsn pg_lsn DEFAULT NULL, timeout interval DEFAULT '5s', pipeline text DEFAULT NULL, INOUT caught_up boolean DEFAULT NULL)
LANGUAGE plpgsql AS $$
DECLARE
    ids    integer[] := embedsidecar.waited_for(pipeline);
    target pg_lsn := coalesce(lsn, pg_current_wal_insert_lsn());
    state  record;
    began  timestamptz := clock_timestamp();
    asked  timestamptz := '-infinity';
    again  interval := '50 ms';
    pause  double precision := 0.001;
BEGIN
    IF timeout IS NULL OR timeout < '0' THEN
        RAISE EXCEPTION 'wait_until: timeout: expected a time that is not negative, not %', coalesce(timeout::text, 'NULL') USING ERRCODE = 'invalid_parameter_value';
    END IF;
    LOOP
        SELECT h.* INTO state FROM embedsidecar.how_far(ids, target) AS h;
        caught_up := state.done;
        EXIT WHEN caught_up;
        IF state.resting IS NOT NULL THEN
            RAISE NOTICE 'not waited for: %', state.resting USING HINT = 'embedsidecar.status tells more; embedsidecar.resume lets a paused one go on';
            EXIT;
        END IF;
        IF clock_timestamp() >= began + timeout THEN
            RAISE NOTICE 'not caught up with % in time: %', target, state.left_over;
            EXIT;
        END IF;
        IF clock_timestamp() >= asked + again THEN
            asked := clock_timestamp();
            again := least(2 * again, '1 s');
            PERFORM pg_notify('embedsidecar_waiting', target::text);
        END IF;
        COMMIT;
        PERFORM pg_sleep(pause);
        pause := least(1.5 * pause, 0.25);
    END LOOP;
END $$;
COMMENT ON PROCEDURE embedsidecar.wait_until(pg_lsn, interval, text, boolean) IS 'As wait_for, on every version of PostgreSQL: it commits, so it is called outside of a transaction, and keeps none open while it waits.';

-- Views. They read with the rights of their owner; no row's text is in any. Counts of tasks are exact up to 100,000 and end there.

CREATE VIEW embedsidecar.status AS
SELECT p.pipeline_id, p.name AS pipeline, p.slot_name, coalesce(tn.nspname, p.table_schema) AS table_schema, coalesce(tc.relname, p.table_name) AS table_name,
       p.model, p.plugin, p.generation, i.enabled AND p.enabled AS enabled, p.status, p.status_detail,
       (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'todo' AND t.pipeline_id = p.pipeline_id
            AND t.task_id NOT IN (SELECT unnest(l.task_ids) FROM embedsidecar.lease AS l WHERE l.pipeline_id = p.pipeline_id AND l.epoch = p.lease_epoch AND l.leased_until >= now())
            LIMIT 100000) AS c) AS pending,
       (SELECT coalesce(sum(cardinality(l.task_ids)), 0) FROM embedsidecar.lease AS l WHERE l.pipeline_id = p.pipeline_id AND l.epoch = p.lease_epoch AND l.leased_until >= now()) AS running,
       (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'retrying' AND t.pipeline_id = p.pipeline_id LIMIT 100000) AS c) AS retrying,
       (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'failed' AND t.pipeline_id = p.pipeline_id LIMIT 100000) AS c) AS failed,
       (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'cancelled' AND t.pipeline_id = p.pipeline_id LIMIT 100000) AS c) AS cancelled,
       extract(epoch FROM now() - (SELECT min(t.committed_at) FROM unnest('{0,1,2,3}'::smallint[]) AS n (lane) CROSS JOIN LATERAL (
           (SELECT t.committed_at FROM embedsidecar.task AS t WHERE t.state = 'todo' AND t.pipeline_id = p.pipeline_id AND t.lane = n.lane
            ORDER BY t.seq LIMIT 1000)
           UNION ALL
           (SELECT t.committed_at FROM embedsidecar.task AS t WHERE t.state = 'retrying' AND t.pipeline_id = p.pipeline_id AND t.lane = n.lane
            ORDER BY t.due_at LIMIT 1000)) AS t))::double precision AS oldest_seconds,
       coalesce(s.phase, 'done') AS scan_phase,
       NOT EXISTS (SELECT FROM embedsidecar.route AS r WHERE r.pipeline_id = p.pipeline_id AND r.generation = p.generation) AS unrouted,
       EXISTS (SELECT FROM embedsidecar.worker AS w WHERE w.slot_name = p.slot_name AND w.last_seen_at > now() - interval '5 minutes'
               AND (w.session_name = '' OR EXISTS (SELECT FROM pg_stat_activity AS a
                    WHERE a.datname = current_database() AND a.application_name = w.session_name AND a.pid <> pg_backend_pid()))) AS sidecar_runs,
       p.tokens_embedded,
       (SELECT greatest(sum(c.reltuples), 0)::bigint FROM pg_class AS c
        WHERE c.relkind = 'r' AND c.oid IN (SELECT t.relid FROM pg_partition_tree(p.table_oid) AS t UNION SELECT p.table_oid)) AS rows_estimate
FROM   embedsidecar.pipeline AS p
       CROSS JOIN embedsidecar.installation AS i
       LEFT JOIN embedsidecar.scan AS s ON s.pipeline_id = p.pipeline_id
       LEFT JOIN pg_class AS tc ON tc.oid = p.table_oid
       LEFT JOIN pg_namespace AS tn ON tn.oid = tc.relnamespace;
COMMENT ON VIEW embedsidecar.status IS 'One row per pipeline: the facts of which embedsidecar status makes its word for the state. Counts are exact up to 100,000 and end there; no table of yours is counted.';
COMMENT ON COLUMN embedsidecar.status.pipeline_id IS 'Its number.';
COMMENT ON COLUMN embedsidecar.status.pipeline IS 'Its name.';
COMMENT ON COLUMN embedsidecar.status.slot_name IS 'The replication slot that its changes come from.';
COMMENT ON COLUMN embedsidecar.status.table_schema IS 'Schema of the source table, as it is called now.';
COMMENT ON COLUMN embedsidecar.status.table_name IS 'The source table, as it is called now.';
COMMENT ON COLUMN embedsidecar.status.model IS 'What embeds.';
COMMENT ON COLUMN embedsidecar.status.plugin IS 'The program that runs the model.';
COMMENT ON COLUMN embedsidecar.status.generation IS 'Raised by each change of what vectors are made with.';
COMMENT ON COLUMN embedsidecar.status.enabled IS 'Neither it nor all of them are paused.';
COMMENT ON COLUMN embedsidecar.status.status IS 'Whether it fits its table, as was last found: active, missing, misconfigured or unpublished.';
COMMENT ON COLUMN embedsidecar.status.status_detail IS 'Why it is not active, and what to do.';
COMMENT ON COLUMN embedsidecar.status.pending IS 'Rows that wait to be embedded.';
COMMENT ON COLUMN embedsidecar.status.running IS 'Rows that are being embedded.';
COMMENT ON COLUMN embedsidecar.status.retrying IS 'Rows that failed and are tried again by themselves.';
COMMENT ON COLUMN embedsidecar.status.failed IS 'Dead letters: rows that could not be embedded.';
COMMENT ON COLUMN embedsidecar.status.cancelled IS 'Rows that somebody has taken out of the queue.';
COMMENT ON COLUMN embedsidecar.status.oldest_seconds IS 'Age of the oldest change that waits; NULL: none does.';
COMMENT ON COLUMN embedsidecar.status.scan_phase IS 'waiting, rows, orphans or done: see progress.';
COMMENT ON COLUMN embedsidecar.status.unrouted IS 'The streamer does not know the pipeline yet as it is now.';
COMMENT ON COLUMN embedsidecar.status.sidecar_runs IS 'A sidecar for its slot was seen of late.';
COMMENT ON COLUMN embedsidecar.status.tokens_embedded IS 'Tokens that the embedder has seen for it.';
COMMENT ON COLUMN embedsidecar.status.rows_estimate IS 'Rows of the source table by the server''s own estimate.';

CREATE VIEW embedsidecar.progress AS
SELECT p.name AS pipeline, s.phase, s.reason, s.finished_at IS NULL AS backfill, s.rows_seen, s.rows_expected, s.tasks_made,
       CASE WHEN s.phase = 'rows' THEN s.rows_seen / greatest(extract(epoch FROM now() - s.started_at), 1) END::double precision AS rows_per_second,
       CASE WHEN s.phase = 'waiting' AND s.barrier > pg_snapshot_xmin(pg_current_snapshot()) THEN s.barrier END AS waits_for_transactions_before,
       s.requested_at, s.started_at, s.finished_at
FROM   embedsidecar.scan AS s JOIN embedsidecar.pipeline AS p ON p.pipeline_id = s.pipeline_id;
COMMENT ON VIEW embedsidecar.progress IS 'The backfill of a pipeline, or the last comparison of all its rows with what was written for them.';
COMMENT ON COLUMN embedsidecar.progress.pipeline IS 'Its name.';
COMMENT ON COLUMN embedsidecar.progress.phase IS 'waiting, rows (reads the table), orphans (looks for vectors without a row) or done.';
COMMENT ON COLUMN embedsidecar.progress.reason IS 'Why it was asked for.';
COMMENT ON COLUMN embedsidecar.progress.backfill IS 'None has ended yet.';
COMMENT ON COLUMN embedsidecar.progress.rows_seen IS 'Rows compared so far.';
COMMENT ON COLUMN embedsidecar.progress.rows_expected IS 'By the server''s estimate when it began; 0: there was none.';
COMMENT ON COLUMN embedsidecar.progress.tasks_made IS 'Rows that differed, so that they are looked at.';
COMMENT ON COLUMN embedsidecar.progress.rows_per_second IS 'Since it began; NULL: it does not read the table now.';
COMMENT ON COLUMN embedsidecar.progress.waits_for_transactions_before IS 'It begins when every open transaction with an id below this one has ended; NULL: it does not wait.';
COMMENT ON COLUMN embedsidecar.progress.requested_at IS 'When it was last asked for.';
COMMENT ON COLUMN embedsidecar.progress.started_at IS 'When the one that runs, or ran last, began.';
COMMENT ON COLUMN embedsidecar.progress.finished_at IS 'When one last ended.';

CREATE VIEW embedsidecar.tasks AS
SELECT p.name AS pipeline, t.row_key,
       CASE WHEN t.state <> 'todo' OR h.leased_until IS NULL THEN t.state::text WHEN h.leased_until >= now() THEN 'in_progress' ELSE 'stale' END AS state,
       (ARRAY['low', 'normal', 'high', 'urgent'])[t.lane + 1] AS priority, t.attempt::integer AS attempt,
       t.error_class, t.error_code, t.error_message, t.committed_at, t.enqueued_at,
       CASE WHEN t.state = 'retrying' THEN t.due_at END AS next_try_at,
       CASE WHEN h.leased_until IS NOT NULL AND t.state = 'todo' THEN h.instance END AS leased_by,
       CASE WHEN t.state = 'todo' THEN h.leased_until END AS leased_until, t.first_lsn, t.last_lsn, t.task_id
FROM   embedsidecar.task AS t
       JOIN embedsidecar.pipeline AS p ON p.pipeline_id = t.pipeline_id
       LEFT JOIN (SELECT DISTINCT ON (u.task_id) u.task_id, l.leased_until, coalesce(w.instance, 'worker ' || l.worker_id) AS instance
                  FROM   embedsidecar.lease AS l
                         JOIN embedsidecar.pipeline AS q ON q.pipeline_id = l.pipeline_id AND q.lease_epoch = l.epoch
                         CROSS JOIN LATERAL unnest(l.task_ids) AS u (task_id)
                         LEFT JOIN embedsidecar.worker AS w ON w.worker_id = l.worker_id
                  ORDER BY u.task_id, l.leased_until DESC) AS h ON h.task_id = t.task_id;
COMMENT ON VIEW embedsidecar.tasks IS 'Rows that wait, are being embedded, failed or were cancelled: at most one task per pipeline and row. Never a text.';
COMMENT ON COLUMN embedsidecar.tasks.pipeline IS 'Its name.';
COMMENT ON COLUMN embedsidecar.tasks.row_key IS 'The row''s key as PostgreSQL prints it; several columns are joined by | with \ and | escaped by \.';
COMMENT ON COLUMN embedsidecar.tasks.state IS 'todo, in_progress, stale (in progress, and the lease is over), retrying, failed (a dead letter) or cancelled.';
COMMENT ON COLUMN embedsidecar.tasks.priority IS 'low, normal, high or urgent.';
COMMENT ON COLUMN embedsidecar.tasks.attempt IS 'Tries that failed because of the row itself.';
COMMENT ON COLUMN embedsidecar.tasks.error_class IS 'What kind of trouble the last try had; NULL: none.';
COMMENT ON COLUMN embedsidecar.tasks.error_code IS 'Which trouble.';
COMMENT ON COLUMN embedsidecar.tasks.error_message IS 'In words, without text of the row.';
COMMENT ON COLUMN embedsidecar.tasks.committed_at IS 'When the oldest change that is not satisfied was committed, or a look was asked for.';
COMMENT ON COLUMN embedsidecar.tasks.enqueued_at IS 'When the task was made.';
COMMENT ON COLUMN embedsidecar.tasks.next_try_at IS 'When a row that failed is tried again by itself.';
COMMENT ON COLUMN embedsidecar.tasks.leased_by IS 'The sidecar that works on it.';
COMMENT ON COLUMN embedsidecar.tasks.leased_until IS 'Until when, unless it extends that.';
COMMENT ON COLUMN embedsidecar.tasks.first_lsn IS 'The oldest change that is not satisfied; 0/0: nobody knows how old it is.';
COMMENT ON COLUMN embedsidecar.tasks.last_lsn IS 'The newest.';
COMMENT ON COLUMN embedsidecar.tasks.task_id IS 'Its number.';

CREATE VIEW embedsidecar.dead_letters AS
SELECT p.name AS pipeline, t.row_key, t.error_class, t.error_code, t.error_message, t.attempt::integer AS attempt, t.committed_at, t.enqueued_at
FROM   embedsidecar.task AS t JOIN embedsidecar.pipeline AS p ON p.pipeline_id = t.pipeline_id
WHERE  t.state = 'failed';
COMMENT ON VIEW embedsidecar.dead_letters IS 'Rows that could not be embedded and are not tried again until they change or somebody asks: embedsidecar.retry_failed.';
COMMENT ON COLUMN embedsidecar.dead_letters.pipeline IS 'Its name.';
COMMENT ON COLUMN embedsidecar.dead_letters.row_key IS 'The row''s key.';
COMMENT ON COLUMN embedsidecar.dead_letters.error_class IS 'What kind of trouble.';
COMMENT ON COLUMN embedsidecar.dead_letters.error_code IS 'Which trouble.';
COMMENT ON COLUMN embedsidecar.dead_letters.error_message IS 'In words, without text of the row.';
COMMENT ON COLUMN embedsidecar.dead_letters.attempt IS 'Tries that failed because of the row itself.';
COMMENT ON COLUMN embedsidecar.dead_letters.committed_at IS 'When the change was committed.';
COMMENT ON COLUMN embedsidecar.dead_letters.enqueued_at IS 'When its task was made.';

CREATE VIEW embedsidecar.errors AS
SELECT p.name AS pipeline, g.state, g.error_class, g.error_code, g.rows, g.first_committed_at, g.last_committed_at, g.sample_key,
       (SELECT t.error_message FROM embedsidecar.task AS t WHERE t.row_key = g.sample_key AND t.pipeline_id = g.pipeline_id) AS sample_message
FROM  (SELECT t.pipeline_id, t.state::text AS state, t.error_class, t.error_code, count(*) AS rows,
              min(t.committed_at) AS first_committed_at, max(t.committed_at) AS last_committed_at, min(t.row_key) AS sample_key
       FROM   embedsidecar.task AS t WHERE t.state = 'failed' GROUP BY 1, 2, 3, 4
       UNION ALL
       SELECT t.pipeline_id, t.state::text, t.error_class, t.error_code, count(*), min(t.committed_at), max(t.committed_at), min(t.row_key)
       FROM   embedsidecar.task AS t WHERE t.state = 'retrying' GROUP BY 1, 2, 3, 4) AS g
       JOIN embedsidecar.pipeline AS p ON p.pipeline_id = g.pipeline_id;
COMMENT ON VIEW embedsidecar.errors IS 'What goes wrong, grouped: dead letters (failed) and rows that are tried again (retrying) by pipeline, class and code.';
COMMENT ON COLUMN embedsidecar.errors.pipeline IS 'Its name.';
COMMENT ON COLUMN embedsidecar.errors.state IS 'failed or retrying.';
COMMENT ON COLUMN embedsidecar.errors.error_class IS 'What kind of trouble.';
COMMENT ON COLUMN embedsidecar.errors.error_code IS 'Which trouble.';
COMMENT ON COLUMN embedsidecar.errors.rows IS 'How many rows have it.';
COMMENT ON COLUMN embedsidecar.errors.first_committed_at IS 'When the oldest of their changes was committed.';
COMMENT ON COLUMN embedsidecar.errors.last_committed_at IS 'When the newest was.';
COMMENT ON COLUMN embedsidecar.errors.sample_key IS 'The key of one of them.';
COMMENT ON COLUMN embedsidecar.errors.sample_message IS 'What was said of that one, without text of the row.';

CREATE VIEW embedsidecar.slots AS
SELECT c.slot_name, c.publication, c.lsn AS checkpoint, c.saved_at, s.slot_name IS NOT NULL AS exists, coalesce(s.active, false) AS active, s.active_pid,
       (SELECT a.application_name FROM pg_stat_activity AS a WHERE a.pid = s.active_pid) AS held_by, s.wal_status,
       s.safe_wal_size AS safe_wal_bytes, pg_wal_lsn_diff(e.wal_end, c.lsn)::bigint AS lag_bytes, pg_wal_lsn_diff(e.wal_end, s.restart_lsn)::bigint AS retained_bytes,
       p.oid IS NOT NULL AS publication_exists, c.system_id <> (SELECT k.system_identifier::text FROM pg_control_system() AS k) AS other_server
FROM   embedsidecar.lsn_checkpoint AS c
       CROSS JOIN (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END AS wal_end) AS e
       LEFT JOIN pg_publication AS p ON p.pubname = c.publication
       LEFT JOIN pg_replication_slots AS s ON s.slot_name = c.slot_name AND s.database = current_database();
COMMENT ON VIEW embedsidecar.slots IS 'The replication slots that changes come from, and how far behind they are.';
COMMENT ON COLUMN embedsidecar.slots.slot_name IS 'Its name.';
COMMENT ON COLUMN embedsidecar.slots.publication IS 'What it publishes.';
COMMENT ON COLUMN embedsidecar.slots.checkpoint IS 'Every change before this LSN is in the queue or done.';
COMMENT ON COLUMN embedsidecar.slots.saved_at IS 'When that was stored last; an idle one is stored rarely.';
COMMENT ON COLUMN embedsidecar.slots.exists IS 'The server has it, for this database.';
COMMENT ON COLUMN embedsidecar.slots.active IS 'Somebody reads it.';
COMMENT ON COLUMN embedsidecar.slots.active_pid IS 'Who: the pid of its walsender.';
COMMENT ON COLUMN embedsidecar.slots.held_by IS 'application_name of that.';
COMMENT ON COLUMN embedsidecar.slots.wal_status IS 'reserved, extended, unreserved or lost.';
COMMENT ON COLUMN embedsidecar.slots.safe_wal_bytes IS 'WAL that may still come before the slot is lost; NULL: no limit is set.';
COMMENT ON COLUMN embedsidecar.slots.lag_bytes IS 'WAL behind the checkpoint.';
COMMENT ON COLUMN embedsidecar.slots.retained_bytes IS 'WAL that the server keeps for it.';
COMMENT ON COLUMN embedsidecar.slots.publication_exists IS 'The publication is there.';
COMMENT ON COLUMN embedsidecar.slots.other_server IS 'It was set up on another server: the data was restored or copied.';

CREATE VIEW embedsidecar.workers AS
SELECT w.worker_id, w.instance, w.version, w.slot_name, w.stream, w.stream_detail, w.problems, w.started_at, w.last_seen_at,
       w.last_seen_at > now() - interval '5 minutes' AND (w.session_name = '' OR EXISTS (SELECT FROM pg_stat_activity AS a
           WHERE a.datname = current_database() AND a.application_name = w.session_name AND a.pid <> pg_backend_pid())) AS runs,
       (SELECT coalesce(sum(cardinality(l.task_ids)), 0) FROM embedsidecar.lease AS l WHERE l.worker_id = w.worker_id AND l.leased_until >= now()) AS rows_leased
FROM   embedsidecar.worker AS w;
COMMENT ON VIEW embedsidecar.workers IS 'Sidecars that work the queue of this database, and those that ended a short while ago.';
COMMENT ON COLUMN embedsidecar.workers.worker_id IS 'Its number.';
COMMENT ON COLUMN embedsidecar.workers.instance IS 'Its name.';
COMMENT ON COLUMN embedsidecar.workers.version IS 'Of the program.';
COMMENT ON COLUMN embedsidecar.workers.slot_name IS 'The slot that it is for.';
COMMENT ON COLUMN embedsidecar.workers.stream IS 'What it does about the slot: starting, streaming, standby, making (the slot), stuck or none.';
COMMENT ON COLUMN embedsidecar.workers.stream_detail IS 'Why its stream is not what it should be.';
COMMENT ON COLUMN embedsidecar.workers.problems IS 'Why it does not work a pipeline, by pipeline_id: code and detail.';
COMMENT ON COLUMN embedsidecar.workers.started_at IS 'When it started.';
COMMENT ON COLUMN embedsidecar.workers.last_seen_at IS 'Its last sign of life.';
COMMENT ON COLUMN embedsidecar.workers.runs IS 'It was seen of late, and a session of its name is there.';
COMMENT ON COLUMN embedsidecar.workers.rows_leased IS 'Rows that it is embedding.';

CREATE VIEW embedsidecar.pipelines AS
SELECT p.name AS pipeline, p.pipeline_id, p.table_schema, p.table_name, p.source_columns, p.text_expression, p.filter_expression, p.key_columns, p.watched_columns,
       p.destination_column, p.destination_schema, p.destination_table, p.dims, p.plugin, p.model, p.fingerprint, p.chunking, p.generation, p.definition_version,
       (ARRAY['low', 'normal', 'high', 'urgent'])[p.lane + 1] AS priority, p.enabled, p.status, p.status_detail, p.slot_name, p.created_at
FROM   embedsidecar.pipeline AS p;
COMMENT ON VIEW embedsidecar.pipelines IS 'What is embedded with what, and where to.';
COMMENT ON COLUMN embedsidecar.pipelines.pipeline IS 'Its name.';
COMMENT ON COLUMN embedsidecar.pipelines.pipeline_id IS 'Its number.';
COMMENT ON COLUMN embedsidecar.pipelines.table_schema IS 'Schema of the source table, as the pipeline last knew it.';
COMMENT ON COLUMN embedsidecar.pipelines.table_name IS 'The source table.';
COMMENT ON COLUMN embedsidecar.pipelines.source_columns IS 'Columns that make the text.';
COMMENT ON COLUMN embedsidecar.pipelines.text_expression IS 'The expression that makes it in their place.';
COMMENT ON COLUMN embedsidecar.pipelines.filter_expression IS 'Rows for which this is not true have no vector.';
COMMENT ON COLUMN embedsidecar.pipelines.key_columns IS 'What row_key is made of.';
COMMENT ON COLUMN embedsidecar.pipelines.watched_columns IS 'Columns that text and filter read; NULL: not known.';
COMMENT ON COLUMN embedsidecar.pipelines.destination_column IS 'The column that the vectors go to, or NULL.';
COMMENT ON COLUMN embedsidecar.pipelines.destination_schema IS 'Schema of the embedding table, or NULL.';
COMMENT ON COLUMN embedsidecar.pipelines.destination_table IS 'The embedding table, or NULL.';
COMMENT ON COLUMN embedsidecar.pipelines.dims IS 'Width of the vectors.';
COMMENT ON COLUMN embedsidecar.pipelines.plugin IS 'The program that runs the model.';
COMMENT ON COLUMN embedsidecar.pipelines.model IS 'What embeds.';
COMMENT ON COLUMN embedsidecar.pipelines.fingerprint IS 'The embedder''s own name for everything that can change a vector.';
COMMENT ON COLUMN embedsidecar.pipelines.chunking IS 'How texts are cut into chunks; empty: not at all.';
COMMENT ON COLUMN embedsidecar.pipelines.generation IS 'Raised by each change of what vectors are made with.';
COMMENT ON COLUMN embedsidecar.pipelines.definition_version IS 'Raised by each change of what is configured.';
COMMENT ON COLUMN embedsidecar.pipelines.priority IS 'The lane of its live changes: low, normal, high or urgent.';
COMMENT ON COLUMN embedsidecar.pipelines.enabled IS 'It is not paused by its own name.';
COMMENT ON COLUMN embedsidecar.pipelines.status IS 'Whether it fits its table, as was last found.';
COMMENT ON COLUMN embedsidecar.pipelines.status_detail IS 'Why it does not.';
COMMENT ON COLUMN embedsidecar.pipelines.slot_name IS 'The slot that its changes come from.';
COMMENT ON COLUMN embedsidecar.pipelines.created_at IS 'When it was set up.';

-- Facts, each with what mends it. Which of them is the state of a pipeline judges embedsidecar status.
CREATE VIEW embedsidecar.health AS
SELECT 'switch' AS "check", 'all pipelines' AS subject, CASE WHEN i.enabled THEN 'ok' ELSE 'warn' END AS status,
       CASE WHEN i.enabled THEN 'on' ELSE 'paused: changes are queued, nothing is embedded' END AS detail,
       CASE WHEN NOT i.enabled THEN 'SELECT embedsidecar.resume();' END AS hint
FROM   embedsidecar.installation AS i
UNION ALL
SELECT 'slot', s.slot_name::text,
       CASE WHEN NOT s.exists OR s.wal_status = 'lost' OR s.other_server OR NOT s.publication_exists THEN 'error'
            WHEN NOT s.active OR s.wal_status = 'unreserved' THEN 'warn' ELSE 'ok' END,
       CASE WHEN s.other_server THEN 'was set up on another server: the data was restored or copied'
            WHEN NOT s.exists THEN 'does not exist: changes are not seen'
            WHEN s.wal_status = 'lost' THEN 'is lost: the server removed WAL that it needed'
            WHEN NOT s.publication_exists THEN 'its publication ' || s.publication || ' does not exist: changes are not seen'
            WHEN s.wal_status = 'unreserved' THEN 'is about to be lost: it keeps ' || pg_size_pretty(s.retained_bytes) || ' of WAL'
            WHEN NOT s.active THEN 'nobody streams it; it keeps ' || pg_size_pretty(s.retained_bytes) || ' of WAL'
            ELSE 'streamed, ' || pg_size_pretty(s.lag_bytes) || ' behind' END,
       CASE WHEN s.other_server THEN '-- embedsidecar init --adopt, with the pipelines configured'
            WHEN NOT s.exists OR s.wal_status = 'lost' THEN '-- embedsidecar run makes it anew and compares every row'
            WHEN NOT s.publication_exists THEN '-- embedsidecar init makes it again'
            WHEN s.wal_status = 'unreserved' THEN 'ALTER SYSTEM SET max_slot_wal_keep_size = ''-1''; SELECT pg_reload_conf();'
            WHEN NOT s.active THEN 'SELECT * FROM embedsidecar.workers; -- if none runs: embedsidecar run' END
FROM   embedsidecar.slots AS s
UNION ALL
SELECT 'sidecar', c.slot_name::text, CASE WHEN n.running > 0 THEN 'ok' ELSE 'error' END,
       CASE WHEN n.running > 0 THEN n.running || ' running' ELSE 'none runs: changes wait in the slot' END, CASE WHEN n.running = 0 THEN '-- embedsidecar run' END
FROM   embedsidecar.lsn_checkpoint AS c
       CROSS JOIN LATERAL (SELECT count(*) AS running FROM embedsidecar.workers AS w WHERE w.slot_name = c.slot_name AND w.runs) AS n
UNION ALL
SELECT 'stream', w.instance, CASE WHEN w.stream = 'stuck' THEN 'error' ELSE 'ok' END, concat_ws(': ', w.stream, nullif(w.stream_detail, '')),
       CASE WHEN w.stream = 'stuck' THEN 'SELECT * FROM pg_replication_slots;' END
FROM   embedsidecar.workers AS w WHERE w.runs
UNION ALL
SELECT 'definition', p.name, CASE WHEN p.status = 'active' THEN 'ok' ELSE 'error' END, concat_ws(': ', p.status, nullif(p.status_detail, '')),
       CASE WHEN p.status <> 'active' THEN '-- embedsidecar check tells what to do' END
FROM   embedsidecar.pipeline AS p
UNION ALL
SELECT 'paused', p.name, 'warn', 'paused: changes are queued, nothing is embedded', format('SELECT embedsidecar.resume(%L);', p.name)
FROM   embedsidecar.pipeline AS p WHERE NOT p.enabled
UNION ALL
SELECT 'embedder', p.name, 'error', w.instance || ': ' || concat_ws(': ', o.problem ->> 'code', o.problem ->> 'detail'),
       format('SELECT * FROM embedsidecar.errors WHERE pipeline = %L;', p.name)
FROM   embedsidecar.pipeline AS p
       JOIN embedsidecar.workers AS w ON w.slot_name = p.slot_name AND w.runs
       CROSS JOIN LATERAL (SELECT w.problems -> p.pipeline_id::text AS problem) AS o
WHERE  o.problem IS NOT NULL
UNION ALL
SELECT 'dead letters', p.name, CASE WHEN n.rows > 0 THEN 'warn' ELSE 'ok' END,
       CASE WHEN n.rows > 0 THEN n.rows || ' could not be embedded' ELSE 'none' END,
       CASE WHEN n.rows > 0 THEN format('SELECT * FROM embedsidecar.errors WHERE pipeline = %1$L; SELECT * FROM embedsidecar.retry_failed(%1$L);', p.name) END
FROM   embedsidecar.pipeline AS p
       CROSS JOIN LATERAL (SELECT count(*) AS rows FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'failed' AND t.pipeline_id = p.pipeline_id LIMIT 100000) AS c) AS n
UNION ALL
SELECT 'cancelled', p.name, 'warn', n.rows || ' were taken out of the queue', format('SELECT * FROM embedsidecar.requeue(%L);', p.name)
FROM   embedsidecar.pipeline AS p
       CROSS JOIN LATERAL (SELECT count(*) AS rows FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'cancelled' AND t.pipeline_id = p.pipeline_id LIMIT 100000) AS c) AS n
WHERE  n.rows > 0;
COMMENT ON VIEW embedsidecar.health IS 'What is right and what is not, with what mends it. The state of a pipeline in a word is embedsidecar status''s to say.';
COMMENT ON COLUMN embedsidecar.health."check" IS 'What was looked at.';
COMMENT ON COLUMN embedsidecar.health.subject IS 'The pipeline, slot or sidecar.';
COMMENT ON COLUMN embedsidecar.health.status IS 'ok, warn or error.';
COMMENT ON COLUMN embedsidecar.health.detail IS 'In words.';
COMMENT ON COLUMN embedsidecar.health.hint IS 'SQL to run, or a comment with the command; NULL: nothing to do.';

CREATE VIEW embedsidecar.audit AS
SELECT a.audit_id, a.acted_at, a.finished_at, a.role_name AS role, a.said_by, a.client_addr, a.application, a.action, a.pipeline, a.arguments - 'pipeline_id' AS arguments,
       a.result, a.changed
FROM   embedsidecar.audit_log AS a;
COMMENT ON VIEW embedsidecar.audit IS 'Who had what done, by the command line or by SQL: the newest 100,000 actions. A dry run is none.';
COMMENT ON COLUMN embedsidecar.audit.audit_id IS 'Its number; also continues of a further portion.';
COMMENT ON COLUMN embedsidecar.audit.acted_at IS 'When it began.';
COMMENT ON COLUMN embedsidecar.audit.finished_at IS 'When its last portion was done.';
COMMENT ON COLUMN embedsidecar.audit.role IS 'The role that logged in.';
COMMENT ON COLUMN embedsidecar.audit.said_by IS 'Who the program says it was asked by; nobody proves it.';
COMMENT ON COLUMN embedsidecar.audit.client_addr IS 'Where from; NULL: by a socket of the machine.';
COMMENT ON COLUMN embedsidecar.audit.application IS 'application_name of the session.';
COMMENT ON COLUMN embedsidecar.audit.action IS 'pause, resume, retry, requeue, cancel, discard, reembed, rescan or set_priority.';
COMMENT ON COLUMN embedsidecar.audit.pipeline IS 'Its name then; NULL: all.';
COMMENT ON COLUMN embedsidecar.audit.arguments IS 'What was asked for; of the keys the first hundred, and how many were given.';
COMMENT ON COLUMN embedsidecar.audit.result IS 'What came of it.';
COMMENT ON COLUMN embedsidecar.audit.changed IS 'How many rows.';

-- All of it belongs to the schema's owner, whoever upgrades; nobody may run a function before somebody grants it. The roles that run a sidecar here
-- could do this by the tables already.
REVOKE ALL ON ALL ROUTINES IN SCHEMA embedsidecar FROM PUBLIC;
DO $$
DECLARE
    owner name := (SELECT pg_get_userbyid(n.nspowner) FROM pg_namespace AS n WHERE n.nspname = 'embedsidecar');
    role  text;
    thing text;
BEGIN
    FOR role IN SELECT DISTINCT a.grantee::regrole FROM pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS a
                WHERE c.oid = 'embedsidecar.task'::regclass AND a.privilege_type = 'UPDATE' AND a.grantee NOT IN (0, c.relowner) LOOP
        EXECUTE format('GRANT SELECT ON embedsidecar.audit_log TO %s', role);
        EXECUTE format('GRANT EXECUTE ON FUNCTION embedsidecar.retry_failed, embedsidecar.requeue, embedsidecar.rescan, embedsidecar.reembed TO %s', role);
    END LOOP;
    IF owner <> current_user THEN
        FOR thing IN SELECT CASE c.relkind WHEN 'v' THEN 'VIEW ' ELSE 'TABLE ' END || c.oid::regclass FROM pg_class AS c
                     WHERE c.relnamespace = 'embedsidecar'::regnamespace AND (c.relkind = 'v' OR c.relname = 'audit_log')
                     UNION ALL SELECT 'ROUTINE ' || p.oid::regprocedure FROM pg_proc AS p WHERE p.pronamespace = 'embedsidecar'::regnamespace LOOP
            EXECUTE format('ALTER %s OWNER TO %I', thing, owner);
        END LOOP;
    END IF;
END $$;
---- create above / drop below ----
DROP VIEW embedsidecar.health, embedsidecar.audit, embedsidecar.pipelines, embedsidecar.workers, embedsidecar.slots, embedsidecar.errors, embedsidecar.dead_letters,
    embedsidecar.tasks, embedsidecar.progress, embedsidecar.status;
DROP PROCEDURE embedsidecar.wait_until;
DROP FUNCTION embedsidecar.wait_for, embedsidecar.caught_up, embedsidecar.how_far, embedsidecar.waited_for, embedsidecar.backlog, embedsidecar.reembed, embedsidecar.rescan,
    embedsidecar.ask_for_scan, embedsidecar.requeue, embedsidecar.add_looks, embedsidecar.discard_dead, embedsidecar.cancel, embedsidecar.put_aside,
    embedsidecar.retry_failed, embedsidecar.set_priority, embedsidecar.resume, embedsidecar.pause, embedsidecar.switch, embedsidecar.end_action, embedsidecar.begin_action,
    embedsidecar.pipeline_meant;
DROP INDEX embedsidecar.task_cancelled_idx;
-- Nothing is lost: what was cancelled is looked at again.
UPDATE embedsidecar.task SET state = 'todo', seq = nextval('embedsidecar.task_seq') WHERE state = 'cancelled';
ALTER TABLE embedsidecar.task DROP CONSTRAINT task_state_check, ADD CONSTRAINT task_state_check CHECK (state IN ('todo', 'retrying', 'failed'));
COMMENT ON TYPE embedsidecar.task_state IS 'What a task is stored as: todo, retrying or failed. Nothing is in_progress any more, leases are rows of their own; nothing is cancelled yet.';
DROP TABLE embedsidecar.audit_log;
