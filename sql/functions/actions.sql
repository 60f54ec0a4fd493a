-- Actions on pipelines and rows. Each has one function, which SQL, the command line, HTTP and the dashboard call. All
-- resolve names in pg_catalog only and run as the schema's owner: callers need no rights to tables. Docs: docs/sql.md.

CREATE OR REPLACE FUNCTION embedsidecar.pipeline_meant(pipeline text) RETURNS integer
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    found integer[];
BEGIN
    SELECT array_agg(p.pipeline_id) INTO found FROM embedsidecar.pipeline AS p WHERE p.name = pipeline_meant.pipeline;
    IF found IS NULL THEN -- by the name of its table
        SELECT array_agg(p.pipeline_id) INTO found FROM embedsidecar.pipeline AS p
        WHERE  p.table_schema || '.' || p.table_name = pipeline_meant.pipeline;
    END IF;
    IF found IS NULL THEN -- without a schema: public, if several have a table of this name
        SELECT array_agg(p.pipeline_id) INTO found FROM (
            SELECT p.pipeline_id, p.table_schema,
                   count(*) OVER () > count(*) OVER (PARTITION BY p.table_schema) AS several
            FROM   embedsidecar.pipeline AS p WHERE p.table_name = pipeline_meant.pipeline) AS p
        WHERE  NOT p.several OR p.table_schema = 'public';
    END IF;
    IF cardinality(found) > 1 THEN -- the one that is named after the table
        found := ARRAY(SELECT p.pipeline_id FROM embedsidecar.pipeline AS p
                       WHERE p.pipeline_id = ANY (found) AND p.name = p.table_schema || '.' || p.table_name);
    END IF;
    IF cardinality(found) = 1 THEN
        RETURN found[1];
    END IF;
    IF pipeline_meant.pipeline IS NULL THEN
        RAISE EXCEPTION 'name a pipeline' USING ERRCODE = 'null_value_not_allowed',
            HINT = 'SELECT pipeline FROM embedsidecar.pipelines lists them';
    END IF;
    RAISE EXCEPTION 'there is no pipeline "%"', left(pipeline_meant.pipeline, 200) USING ERRCODE = 'undefined_object',
        HINT = coalesce('there are: ' || (SELECT string_agg(n.name, ', ') FROM (
                            SELECT p.name FROM embedsidecar.pipeline AS p
                            WHERE  has_table_privilege(session_user, 'embedsidecar.pipeline', 'SELECT')
                                   OR has_table_privilege(session_user, 'embedsidecar.pipelines', 'SELECT')
                                   OR has_any_column_privilege(session_user, p.table_oid, 'SELECT')
                            ORDER BY p.name LIMIT 20) AS n),
                        CASE WHEN EXISTS (SELECT FROM embedsidecar.pipeline)
                             THEN 'you may not read the table of any pipeline'
                             ELSE 'no pipeline is set up in this database: run embedsidecar init' END);
END $$;
COMMENT ON FUNCTION embedsidecar.pipeline_meant IS
    'The number of the pipeline of this name, or of the pipeline of a table of this name: in public, if several '
    'schemas have one; of several pipelines the one named after the table. An error if there is none.';

CREATE OR REPLACE FUNCTION embedsidecar.lane_meant(priority text) RETURNS integer
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    lane integer := array_position(ARRAY['low', 'normal', 'high', 'urgent'], lane_meant.priority) - 1;
BEGIN
    IF lane IS NULL THEN
        RAISE EXCEPTION 'there is no priority "%"', left(coalesce(lane_meant.priority, 'NULL'), 200)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'there are: low, normal, high, urgent';
    END IF;
    RETURN lane;
END $$;
COMMENT ON FUNCTION embedsidecar.lane_meant IS 'The lane of this priority; an error if there is none.';

-- The caller is the role that the session has set: current_user is the owner of the calling function. But ANALYZE,
-- autovacuum, REINDEX and the like run the code of a table's owner in other roles' sessions, with the owner's rights.
-- There PostgreSQL refuses UNLISTEN, which does nothing elsewhere.
CREATE OR REPLACE FUNCTION embedsidecar.asker() RETURNS name
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UNLISTEN embedsidecar_nothing;
    RETURN CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE EXCEPTION 'code of a table calls this in a session of role "%"', session_user
        USING ERRCODE = 'insufficient_privilege', HINT = 'call it from a statement of your own';
END $$;
COMMENT ON FUNCTION embedsidecar.asker IS
    'The current role of the session; an error in code that maintenance of a table runs for its owner.';

-- A further portion must have the arguments of the first, so that the entry of the audit stays true: the same rows, and
-- the same user, because one role may act for several users. For more than a hundred keys, or long ones, the entry has
-- a hash. Its times have one form, whatever the session's form is.
CREATE OR REPLACE FUNCTION embedsidecar.begin_action(action text, pipeline_id integer, arguments jsonb, said_by text,
    dry_run boolean, continues bigint DEFAULT NULL, max_rows integer DEFAULT 1, keys text[] DEFAULT NULL)
RETURNS embedsidecar.audit_log
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    entry embedsidecar.audit_log;
    about jsonb := begin_action.arguments;
    style text := current_setting('intervalstyle');
    given integer := cardinality(begin_action.keys);
    word  text;
    value interval;
    by_   text := coalesce(left(begin_action.said_by, 200), '');
    most_bytes constant integer := 4096;
    kept  text[];
BEGIN
    PERFORM embedsidecar.asker();
    IF begin_action.dry_run IS NULL THEN
        RAISE EXCEPTION '%: dry_run: expected true or false, not NULL', begin_action.action
            USING ERRCODE = 'null_value_not_allowed';
    END IF;
    IF pg_is_in_recovery() AND NOT begin_action.dry_run THEN
        RAISE EXCEPTION '%: this server is a standby, where nothing can be changed', begin_action.action
            USING ERRCODE = 'read_only_sql_transaction', HINT = 'do it on the primary';
    END IF;
    IF begin_action.max_rows IS NULL OR begin_action.max_rows NOT BETWEEN 1 AND 100000 THEN
        RAISE EXCEPTION '%: max_rows: expected a number from 1 to 100000, not %', begin_action.action,
            coalesce(begin_action.max_rows::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'remaining says how many rows are left: call it again';
    END IF;
    IF given > 100000 THEN
        RAISE EXCEPTION '%: % keys are too many for one call', begin_action.action, given
            USING ERRCODE = 'program_limit_exceeded', HINT = 'give at most 100000 keys at once';
    END IF;
    IF (CASE WHEN array_ndims(begin_action.keys) > 1 THEN true
             ELSE array_position(begin_action.keys, NULL) IS NOT NULL END) THEN
        RAISE EXCEPTION '%: keys: expected a list of keys without NULL', begin_action.action
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'keys are written as embedsidecar.tasks shows them: ARRAY[''1'', ''2'']';
    END IF;
    IF begin_action.action IN ('requeue', 'reembed') AND given > begin_action.max_rows THEN
        RAISE EXCEPTION '%: % keys are more than max_rows, which is %', begin_action.action, given,
            begin_action.max_rows USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF octet_length(about::text) > most_bytes THEN
        RAISE EXCEPTION '%: % bytes of arguments are too many', begin_action.action, octet_length(about::text)
            USING ERRCODE = 'program_limit_exceeded',
                  HINT = 'class, code and the like have at most ' || most_bytes || ' bytes together';
    END IF;
    IF begin_action.dry_run THEN
        RETURN NULL;
    END IF;
    FOREACH word IN ARRAY ARRAY['older_than', 'period'] LOOP
        value := (about ->> word)::interval; -- in the session's form
        PERFORM set_config('intervalstyle', 'postgres', true);
        about := about || jsonb_build_object(word, value::text);
        PERFORM set_config('intervalstyle', style, true);
    END LOOP;
    kept := ARRAY(SELECT left(k.key, 200) FROM unnest(begin_action.keys[1:100]) WITH ORDINALITY AS k (key, number)
                  ORDER BY k.number);
    about := jsonb_strip_nulls(jsonb_build_object('pipeline_id', begin_action.pipeline_id::text,
        'keys', CASE WHEN begin_action.keys IS NOT NULL THEN to_jsonb(kept) END, 'keys_given', given,
        'keys_sha256', CASE WHEN kept <> begin_action.keys THEN
            encode(sha256(convert_to(to_jsonb(begin_action.keys)::text, 'UTF8')), 'hex') END) || about);
    IF begin_action.continues IS NOT NULL THEN
        SELECT a.* INTO entry FROM embedsidecar.audit_log AS a
        WHERE  a.audit_id = begin_action.continues AND a.action = begin_action.action AND a.role_name = session_user
               AND a.said_by = by_ AND a.arguments = about
        FOR UPDATE;
        IF entry.audit_id IS NULL THEN
            RAISE EXCEPTION '%: continues: no action % of yours is % of these rows', begin_action.action,
                begin_action.continues, begin_action.action USING ERRCODE = 'invalid_parameter_value',
                HINT = 'continues is the audit_id of the first portion: repeat its other arguments, or leave it out';
        END IF;
        RETURN entry;
    END IF;
    INSERT INTO embedsidecar.audit_log AS a (action, pipeline, arguments, said_by, place)
    SELECT begin_action.action,
           (SELECT p.name FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = begin_action.pipeline_id), about, by_,
           coalesce(pg_sequence_last_value('embedsidecar.task_seq'::regclass), 0)
    RETURNING a.* INTO entry;
    RETURN entry;
END $$;
COMMENT ON FUNCTION embedsidecar.begin_action IS 'For actions: checks arguments, and adds the entry of the audit.';

-- A role with a hundred thousand actions pushes out its own entries and no others. A portion that is rolled back pushes
-- out none.
CREATE OR REPLACE FUNCTION embedsidecar.prune_audit() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DELETE FROM embedsidecar.audit_log AS a
WHERE  a.acted_at < now() - interval '400 days'
       OR a.audit_id IN (SELECT n.audit_id FROM (
              SELECT o.audit_id, row_number() OVER (PARTITION BY o.role_name ORDER BY o.audit_id DESC) AS number
              FROM   embedsidecar.audit_log AS o) AS n WHERE n.number > 100000)
$$;
COMMENT ON FUNCTION embedsidecar.prune_audit IS
    'For sidecars: deletes entries of the audit that are too old, or whose role has too many newer ones.';

-- Roles that act by SQL cannot change a sidecar's log. The log has no keys of rows.
CREATE OR REPLACE FUNCTION embedsidecar.tell_audit() RETURNS TABLE (audit_id bigint, acted_at timestamptz, role text,
    said_by text, address text, application text, action text, pipeline text, arguments text, result text,
    changed bigint)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
UPDATE embedsidecar.audit_log AS a SET told = true
WHERE  a.audit_id IN (
           SELECT n.audit_id FROM (
               SELECT u.audit_id, sum(octet_length(u.arguments::text))
                          OVER (ORDER BY u.audit_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes
               FROM  (SELECT o.audit_id, o.arguments - 'keys' AS arguments FROM embedsidecar.audit_log AS o
                      WHERE NOT o.told ORDER BY o.audit_id LIMIT 1000 FOR UPDATE SKIP LOCKED) AS u) AS n
           WHERE coalesce(n.bytes, 0) < 1048576)
RETURNING a.audit_id, a.acted_at, a.role_name::text, a.said_by, coalesce(host(a.client_addr), ''), a.application,
          a.action, coalesce(a.pipeline, ''), (a.arguments - 'keys')::text, a.result, a.changed
$$;
COMMENT ON FUNCTION embedsidecar.tell_audit IS
    'For sidecars: entries of the audit that are new or have changed, for their logs.';

CREATE OR REPLACE FUNCTION embedsidecar.end_action(entry bigint, result text, changed bigint,
    after_key text DEFAULT NULL) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
UPDATE embedsidecar.audit_log AS a
SET    result = CASE WHEN a.changed + end_action.changed = 0
                           AND a.action IN ('retry', 'discard', 'reembed', 'requeue', 'cancel', 'prioritise')
                     THEN 'nothing_to_' || a.action
                   WHEN a.changed + end_action.changed = 0 AND a.action = 'clear_history' THEN 'nothing_to_clear'
                   ELSE end_action.result END,
       changed = a.changed + end_action.changed, after_key = coalesce(end_action.after_key, a.after_key),
       finished_at = clock_timestamp(), told = false
WHERE  a.audit_id = entry
RETURNING a.result
$$;
COMMENT ON FUNCTION embedsidecar.end_action IS
    'For actions: adds the result to the audit entry, and returns it.';

CREATE OR REPLACE FUNCTION embedsidecar.set_enabled(pipeline text, "on" boolean, period interval, dry_run boolean,
    said_by text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    id     integer := CASE WHEN set_enabled.pipeline IS NOT NULL OR set_enabled.period IS NOT NULL
                           THEN embedsidecar.pipeline_meant(set_enabled.pipeline) END;
    done   text := CASE WHEN set_enabled.period = '0' THEN 'back_to_its_hours' WHEN set_enabled."on" THEN 'resumed'
                        ELSE 'paused' END;
    entry  embedsidecar.audit_log;
    result text := CASE WHEN set_enabled."on" THEN 'already_on' ELSE 'already_paused' END;
    n      bigint;
BEGIN
    IF set_enabled.period < '0' OR set_enabled.period > '366 days' THEN
        RAISE EXCEPTION 'resume: period: expected 0 to 366 days, not %', set_enabled.period
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'for longer, change the hours of the pipeline in its configuration: active';
    END IF;
    entry := embedsidecar.begin_action(CASE WHEN set_enabled."on" THEN 'resume' ELSE 'pause' END, id,
        jsonb_build_object('period', set_enabled.period), set_enabled.said_by, set_enabled.dry_run);
    IF set_enabled.dry_run THEN
        n := (SELECT count(*) FROM embedsidecar.installation AS i WHERE id IS NULL AND i.enabled <> set_enabled."on")
           + (SELECT count(*) FROM embedsidecar.pipeline AS p
              WHERE  p.pipeline_id = id AND (p.enabled <> set_enabled."on" OR set_enabled.period IS NOT NULL));
        RETURN CASE WHEN n > 0 THEN 'would_be_' || done ELSE result END;
    END IF;
    IF id IS NULL THEN
        UPDATE embedsidecar.installation AS i SET enabled = set_enabled."on" WHERE i.enabled <> set_enabled."on";
    ELSE
        UPDATE embedsidecar.pipeline AS p
        SET    enabled = CASE WHEN set_enabled.period = '0' THEN p.enabled ELSE set_enabled."on" END,
               adopting = p.adopting AND NOT set_enabled."on",
               open_until = CASE WHEN set_enabled.period IS NULL THEN p.open_until
                                 WHEN set_enabled.period > '0' THEN now() + set_enabled.period END
        WHERE  p.pipeline_id = id AND (p.enabled <> set_enabled."on" OR set_enabled.period IS NOT NULL);
    END IF;
    GET DIAGNOSTICS n = ROW_COUNT;
    IF set_enabled."on" THEN
        PERFORM embedsidecar.end_bulk(id);
    END IF;
    RETURN embedsidecar.end_action(entry.audit_id, CASE WHEN n > 0 THEN done ELSE result END, n);
END $$;
COMMENT ON FUNCTION embedsidecar.set_enabled IS
    'For pause and resume. Leases obey it at once; the streamer sees it at its next heartbeat.';

CREATE OR REPLACE FUNCTION embedsidecar.pause(pipeline text DEFAULT NULL, dry_run boolean DEFAULT false,
    said_by text DEFAULT NULL) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT embedsidecar.set_enabled(pipeline, false, NULL, dry_run, said_by) $$;
COMMENT ON FUNCTION embedsidecar.pause IS
    'Embed nothing of a pipeline until resume; changes are queued meanwhile. Without a name it pauses all pipelines '
    'by one switch. Returns paused, already_paused or, with dry_run, would_be_paused.';

CREATE OR REPLACE FUNCTION embedsidecar.resume(pipeline text DEFAULT NULL, period interval DEFAULT NULL,
    dry_run boolean DEFAULT false, said_by text DEFAULT NULL) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT embedsidecar.set_enabled(pipeline, true, period, dry_run, said_by) $$;
COMMENT ON FUNCTION embedsidecar.resume IS
    'End a pause. Without a name it turns the switch of all pipelines on; a pipeline that was paused by its name '
    'stays paused. With a period the pipeline works for that time from now on, regardless of its hours; 0 ends that. '
    'Returns resumed, already_on, back_to_its_hours or, with dry_run, would_be_ and that.';

CREATE OR REPLACE FUNCTION embedsidecar.set_priority(pipeline text, priority text, dry_run boolean DEFAULT false,
    said_by text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    id     integer := embedsidecar.pipeline_meant(set_priority.pipeline);
    wanted integer := embedsidecar.lane_meant(set_priority.priority);
    entry  embedsidecar.audit_log := embedsidecar.begin_action('set_priority', id,
               jsonb_build_object('priority', set_priority.priority), set_priority.said_by, set_priority.dry_run);
    n      bigint;
BEGIN
    IF set_priority.dry_run THEN
        RETURN CASE WHEN EXISTS (SELECT FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = id AND p.lane <> wanted)
               THEN 'would_be_set' ELSE 'already_so' END;
    END IF;
    UPDATE embedsidecar.pipeline AS p SET lane = wanted WHERE p.pipeline_id = id AND p.lane <> wanted;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN embedsidecar.end_action(entry.audit_id, CASE WHEN n > 0 THEN 'set' ELSE 'already_so' END, n);
END $$;
COMMENT ON FUNCTION embedsidecar.set_priority IS
    'Set the priority of a pipeline''s live changes from now on: low, normal, high or urgent. Waiting rows keep '
    'theirs. A configuration with another priority resets it at the next run. Returns set, already_so or, with '
    'dry_run, would_be_set.';

-- Portions, each a transaction: a call changes up to max_rows rows and returns how many remain. A further portion
-- passes the audit_id of the first as continues; remaining is then NULL until nothing is left to change.
-- Each state, and for prioritise each lane, has its own statement with the state as a literal: no index fits several at
-- once. The stream may need the same rows, so nothing waits, and no lock order is needed. Rows that are being embedded
-- are finished, and the result counts.
CREATE OR REPLACE FUNCTION embedsidecar.change_tasks(action text, pipeline text, priority text, class text, code text,
    keys text[], older_than interval, max_rows integer, dry_run boolean, said_by text, continues bigint,
    OUT changed bigint, OUT remaining bigint, OUT audit_id bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    id     integer := CASE WHEN change_tasks.pipeline IS NOT NULL OR change_tasks.action <> 'retry'
                           THEN embedsidecar.pipeline_meant(change_tasks.pipeline) END;
    wanted integer := CASE WHEN change_tasks.action = 'prioritise'
                           THEN embedsidecar.lane_meant(change_tasks.priority) END;
    parts  text[] := CASE change_tasks.action
        WHEN 'retry' THEN ARRAY[$p$w.state = 'failed'$p$, $p$w.state = 'retrying'$p$]
        WHEN 'discard' THEN ARRAY[$p$w.state = 'failed'$p$]
        WHEN 'cancel' THEN ARRAY[$p$w.state = 'todo'$p$, $p$w.state = 'retrying'$p$, $p$w.state = 'failed'$p$]
        ELSE ARRAY(SELECT format('w.state = %L AND w.lane = %s', s.state, l.lane)
                   FROM   generate_series(0, 3) AS l (lane), unnest(ARRAY['todo', 'retrying']) AS s (state)
                   WHERE  l.lane <> wanted ORDER BY l.lane, s.state DESC) END;
    meant  text := format('FROM embedsidecar.task AS w WHERE %s AND w.seq <= $2'
        ' AND ($3 IS NULL OR w.row_key = ANY ($3)) AND ($4 IS NULL OR w.error_class = $4)'
        ' AND ($5 IS NULL OR w.error_code = $5) AND ($6 IS NULL OR w.committed_at < now() - $6) AND ',
        CASE WHEN change_tasks.pipeline IS NOT NULL THEN 'w.pipeline_id = $1'
             ELSE '$1 IS NULL AND w.pipeline_id IN (SELECT p.pipeline_id FROM embedsidecar.pipeline AS p)' END);
    entry  embedsidecar.audit_log;
    until  bigint := 9223372036854775807;
    part   text;
    chosen bigint[];
    n      bigint;
BEGIN
    IF change_tasks.action = 'cancel' AND coalesce(cardinality(change_tasks.keys), 0) = 0 THEN
        RAISE EXCEPTION 'cancel: name the rows by their keys' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'for a whole pipeline use embedsidecar.pause; for its dead letters embedsidecar.discard_dead';
    END IF;
    changed := 0;
    entry := embedsidecar.begin_action(change_tasks.action, id, jsonb_build_object('priority', change_tasks.priority,
        'class', change_tasks.class, 'code', change_tasks.code, 'older_than', change_tasks.older_than),
        change_tasks.said_by, change_tasks.dry_run, change_tasks.continues, change_tasks.max_rows, change_tasks.keys);
    IF NOT change_tasks.dry_run THEN
        until := entry.place;
        PERFORM set_config('synchronous_commit',
            CASE WHEN current_setting('synchronous_commit') = 'off' THEN 'off' ELSE 'local' END, true);
        FOREACH part IN ARRAY parts LOOP
            EXECUTE format('SELECT array_agg(c.task_id) FROM ('
                'SELECT w.task_id %s%s%s LIMIT $7 FOR UPDATE SKIP LOCKED) AS c',
                meant, part, CASE WHEN part LIKE '%todo%lane%' THEN ' ORDER BY w.seq' ELSE '' END)
            INTO chosen USING id, until, change_tasks.keys, change_tasks.class, change_tasks.code,
                change_tasks.older_than, change_tasks.max_rows - changed;
            IF change_tasks.action = 'retry' THEN -- like a change of the row
                UPDATE embedsidecar.task AS t
                SET    state = 'todo', seq = nextval('embedsidecar.task_seq'), attempt = 0, losses = 0, lost_leases = 0,
                       waits_since = NULL, due_at = NULL, error_class = NULL, error_code = NULL, error_message = NULL
                WHERE  t.task_id = ANY (chosen);
            ELSIF change_tasks.action = 'prioritise' THEN
                -- A new place for each waiting row, in the old order: cursors of the new lane may have passed the old
                -- places.
                UPDATE embedsidecar.task AS t
                SET    lane = wanted, seq = CASE t.state WHEN 'todo' THEN s.seq ELSE t.seq END
                FROM  (SELECT c.task_id, nextval('embedsidecar.task_seq') AS seq
                       FROM   unnest(chosen) AS c (task_id)) AS s
                WHERE  t.task_id = s.task_id AND t.task_id = ANY (chosen);
            ELSE
                UPDATE embedsidecar.task AS t SET state = 'cancelled', waits_since = NULL, due_at = NULL
                WHERE  t.task_id = ANY (chosen);
            END IF;
            changed := changed + coalesce(cardinality(chosen), 0);
        END LOOP;
        audit_id := entry.audit_id;
        PERFORM embedsidecar.end_action(audit_id, CASE change_tasks.action WHEN 'retry' THEN 'retried'
            WHEN 'cancel' THEN 'cancelled' WHEN 'discard' THEN 'discarded' ELSE 'prioritised' END, changed);
    END IF;
    IF change_tasks.continues IS NULL OR changed = 0 THEN
        remaining := 0;
        FOREACH part IN ARRAY parts LOOP
            EXECUTE 'SELECT count(*) ' || meant || part INTO n USING id, until, change_tasks.keys, change_tasks.class,
                change_tasks.code, change_tasks.older_than;
            remaining := remaining + n;
        END LOOP;
    END IF;
END $$;
COMMENT ON FUNCTION embedsidecar.change_tasks IS 'For retry_failed, cancel, discard_dead and prioritise.';

CREATE OR REPLACE FUNCTION embedsidecar.retry_failed(pipeline text DEFAULT NULL, class text DEFAULT NULL,
    code text DEFAULT NULL, keys text[] DEFAULT NULL, older_than interval DEFAULT NULL, max_rows integer DEFAULT 10000,
    dry_run boolean DEFAULT false, said_by text DEFAULT NULL, continues bigint DEFAULT NULL,
    OUT changed bigint, OUT remaining bigint, OUT audit_id bigint)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT c.changed, c.remaining, c.audit_id FROM embedsidecar.change_tasks('retry', pipeline, NULL, class, code, keys,
    older_than, max_rows, dry_run, said_by, continues) AS c
$$;
COMMENT ON FUNCTION embedsidecar.retry_failed IS
    'Retry dead letters, and rows that wait for a retry, at once: of a pipeline or of all, of an error class and '
    'code, with these keys, whose change is older than older_than. Changes at most max_rows and returns how many '
    'remain; with dry_run it only counts these.';

CREATE OR REPLACE FUNCTION embedsidecar.cancel(pipeline text, keys text[], max_rows integer DEFAULT 10000,
    dry_run boolean DEFAULT false, said_by text DEFAULT NULL, continues bigint DEFAULT NULL,
    OUT changed bigint, OUT remaining bigint, OUT audit_id bigint)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT c.changed, c.remaining, c.audit_id FROM embedsidecar.change_tasks('cancel', pipeline, NULL, NULL, NULL, keys,
    NULL, max_rows, dry_run, said_by, continues) AS c
$$;
COMMENT ON FUNCTION embedsidecar.cancel IS
    'Remove rows from the queue: they are reported as cancelled until they change, a scan finds that they differ, or '
    'requeue re-queues them. Rows that are being embedded are finished.';

CREATE OR REPLACE FUNCTION embedsidecar.discard_dead(pipeline text, class text DEFAULT NULL, code text DEFAULT NULL,
    keys text[] DEFAULT NULL, older_than interval DEFAULT NULL, max_rows integer DEFAULT 10000,
    dry_run boolean DEFAULT false, said_by text DEFAULT NULL, continues bigint DEFAULT NULL,
    OUT changed bigint, OUT remaining bigint, OUT audit_id bigint)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT c.changed, c.remaining, c.audit_id FROM embedsidecar.change_tasks('discard', pipeline, NULL, class, code, keys,
    older_than, max_rows, dry_run, said_by, continues) AS c
$$;
COMMENT ON FUNCTION embedsidecar.discard_dead IS
    'Give up on dead letters: they become cancelled, keep their error, and no longer count as failed. They still have '
    'no vector of their text, and are reported as cancelled until they change or requeue re-queues them.';

CREATE OR REPLACE FUNCTION embedsidecar.prioritise(pipeline text, priority text, keys text[] DEFAULT NULL,
    max_rows integer DEFAULT 10000, dry_run boolean DEFAULT false, said_by text DEFAULT NULL,
    continues bigint DEFAULT NULL, OUT changed bigint, OUT remaining bigint, OUT audit_id bigint)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT c.changed, c.remaining, c.audit_id FROM embedsidecar.change_tasks('prioritise', pipeline, priority, NULL, NULL,
    keys, NULL, max_rows, dry_run, said_by, continues) AS c
$$;
COMMENT ON FUNCTION embedsidecar.prioritise IS
    'Change the priority of waiting rows of a pipeline: these, or all; in portions. They keep their order, behind the '
    'rows that already wait there. Later changes have the priority that set_priority gives.';

-- It must be the last to touch tasks in its transaction: the stream waits for their locks. 3 is the first normal
-- transaction id; the age of a change that may be found is not known.
CREATE OR REPLACE FUNCTION embedsidecar.add_looks(id integer, keys text[], at timestamptz DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    n bigint;
BEGIN
    PERFORM set_config('synchronous_commit',
        CASE WHEN current_setting('synchronous_commit') = 'off' THEN 'off' ELSE 'local' END, true);
    INSERT INTO embedsidecar.task AS t (pipeline_id, row_key, lane, xid, first_lsn, last_lsn, committed_at, state,
        waits_since, due_at)
    SELECT id, k.row_key, (SELECT p.lane FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = id), '3'::xid8,
           '0/0'::pg_lsn, pg_current_wal_flush_lsn(), now(),
           CASE WHEN at > now() THEN 'retrying' ELSE 'todo' END::embedsidecar.task_state,
           CASE WHEN at > now() THEN now() END, CASE WHEN at > now() THEN at END
    FROM  (SELECT DISTINCT u.row_key COLLATE "C" AS row_key FROM unnest(add_looks.keys) AS u (row_key)) AS k
    ORDER BY k.row_key -- all sessions lock tasks in this order
    ON CONFLICT (row_key, pipeline_id) DO UPDATE SET
        gen           = t.gen + 1,
        first_lsn     = least(t.first_lsn, excluded.first_lsn),
        next_lsn      = least(t.next_lsn, excluded.first_lsn),
        next_committed_at = coalesce(t.next_committed_at, excluded.committed_at),
        seq           = CASE WHEN t.state = 'todo' THEN t.seq ELSE excluded.seq END,
        state         = excluded.state,
        waits_since   = excluded.waits_since,
        due_at        = excluded.due_at,
        seen          = NULL,
        attempt       = 0,
        -- A worker may hold it, and the outcome is not known.
        losses        = CASE WHEN t.state = 'todo' THEN t.losses ELSE 0 END,
        lost_leases   = CASE WHEN t.state = 'todo' THEN t.lost_leases ELSE 0 END,
        error_class   = NULL,
        error_code    = NULL,
        error_message = NULL;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;
COMMENT ON FUNCTION embedsidecar.add_looks IS 'For requeue and reembed: queues rows, at once or at a time.';

CREATE OR REPLACE FUNCTION embedsidecar.requeue(pipeline text, keys text[] DEFAULT NULL, max_rows integer DEFAULT 10000,
    dry_run boolean DEFAULT false, said_by text DEFAULT NULL, continues bigint DEFAULT NULL,
    at timestamptz DEFAULT NULL, older_than interval DEFAULT NULL,
    OUT changed bigint, OUT remaining bigint, OUT audit_id bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    id    integer := embedsidecar.pipeline_meant(requeue.pipeline);
    entry embedsidecar.audit_log := embedsidecar.begin_action('requeue', id, jsonb_strip_nulls(jsonb_build_object(
              'at', extract(epoch FROM requeue.at), 'older_than', requeue.older_than)), requeue.said_by,
              requeue.dry_run, requeue.continues, requeue.max_rows, requeue.keys);
    until bigint := coalesce(entry.place, 9223372036854775807);
    since timestamptz := coalesce(entry.acted_at, now()) - coalesce(requeue.older_than, '0'::interval);
BEGIN
    IF requeue.at > now() + interval '10 years' THEN
        RAISE EXCEPTION 'requeue: at: expected a time within ten years' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF requeue.keys IS NOT NULL AND requeue.older_than IS NOT NULL THEN
        RAISE EXCEPTION 'requeue: older_than chooses among cancelled rows, and keys name rows: give one of them'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    changed := 0;
    IF NOT requeue.dry_run THEN
        changed := embedsidecar.add_looks(id, coalesce(requeue.keys, ARRAY(
            SELECT w.row_key FROM embedsidecar.task AS w
            WHERE  w.pipeline_id = id AND w.state = 'cancelled' AND w.seq <= until AND w.committed_at <= since
            LIMIT requeue.max_rows)), requeue.at);
        audit_id := entry.audit_id;
        PERFORM embedsidecar.end_action(audit_id, 'requeued', changed);
    END IF;
    IF requeue.keys IS NOT NULL THEN
        remaining := (SELECT count(DISTINCT k) FROM unnest(requeue.keys) AS k WHERE requeue.dry_run);
    ELSIF requeue.continues IS NULL OR changed = 0 THEN
        remaining := (SELECT count(*) FROM embedsidecar.task AS w
                      WHERE  w.pipeline_id = id AND w.state = 'cancelled' AND w.seq <= until
                             AND w.committed_at <= since);
    END IF;
END $$;
COMMENT ON FUNCTION embedsidecar.requeue IS
    'Re-queue rows in any state; without keys the cancelled rows, or those of them whose change is older than '
    'older_than. With at they wait until then, unless they change before. A row that needs nothing is not embedded: '
    'reembed embeds it.';

CREATE OR REPLACE FUNCTION embedsidecar.ask_for_scan(id integer, reason text, asked bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
INSERT INTO embedsidecar.scan AS s (pipeline_id, reason, barrier, asked)
VALUES (id, ask_for_scan.reason, pg_current_xact_id(), ask_for_scan.asked)
ON CONFLICT (pipeline_id) DO UPDATE SET
    reason = CASE WHEN s.phase = 'waiting' THEN s.reason ELSE excluded.reason END,
    barrier = greatest(s.barrier, excluded.barrier), requested = s.requested + 1, partitions = NULL, owners = NULL,
    lost = true, asked = excluded.asked,
    requested_at = now(), phase = CASE WHEN s.phase = 'done' THEN 'waiting' ELSE s.phase END
$$;
COMMENT ON FUNCTION embedsidecar.ask_for_scan IS
    'For backfill and reembed: requests a comparison of every row with what was written for it.';

CREATE OR REPLACE FUNCTION embedsidecar.backfill(pipeline text, dry_run boolean DEFAULT false,
    said_by text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    id    integer := embedsidecar.pipeline_meant(backfill.pipeline);
    entry embedsidecar.audit_log := embedsidecar.begin_action('backfill', id, '{}', backfill.said_by, backfill.dry_run);
BEGIN
    IF backfill.dry_run THEN
        RETURN 'scan_would_be_requested';
    END IF;
    PERFORM embedsidecar.ask_for_scan(id, 'requested', entry.audit_id);
    RETURN embedsidecar.end_action(entry.audit_id, 'scan_requested', 0);
END $$;
COMMENT ON FUNCTION embedsidecar.backfill IS
    'Compare every row of a pipeline now; only rows without a vector of their current text are embedded. Returns '
    'scan_requested or, with dry_run, scan_would_be_requested.';

CREATE OR REPLACE FUNCTION embedsidecar.reembed(pipeline text, keys text[] DEFAULT NULL, max_rows integer DEFAULT 10000,
    dry_run boolean DEFAULT false, said_by text DEFAULT NULL, continues bigint DEFAULT NULL,
    OUT changed bigint, OUT remaining bigint, OUT audit_id bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    id    integer := embedsidecar.pipeline_meant(reembed.pipeline);
    entry embedsidecar.audit_log := embedsidecar.begin_action('reembed', id, '{}', reembed.said_by, reembed.dry_run,
              reembed.continues, reembed.max_rows, reembed.keys);
    done  text := CASE WHEN reembed.continues IS NOT NULL THEN entry.after_key END; -- a key may be empty
    last  text;
BEGIN
    changed := 0;
    IF reembed.dry_run THEN
        remaining := (SELECT count(*) FROM embedsidecar.ledger AS l
                      WHERE  l.pipeline_id = id AND l.text_hash IS NOT NULL
                             AND (reembed.keys IS NULL OR l.row_key = ANY (reembed.keys)));
        RETURN;
    END IF;
    -- An entry without a vector's hash fits no vector, so a worker reuses none for its row.
    WITH marked AS (
        UPDATE embedsidecar.ledger AS l
        SET    text_hash = NULL, norm_hash = NULL, vector_hash = '', skipped = NULL, ignored = false
        WHERE  l.pipeline_id = id AND l.row_key = ANY (ARRAY(
            SELECT w.row_key FROM embedsidecar.ledger AS w
            WHERE  w.pipeline_id = id AND w.row_key >= entry.after_key AND w.row_key IS DISTINCT FROM done
                   AND w.text_hash IS NOT NULL
                   AND (reembed.keys IS NULL OR w.row_key = ANY (reembed.keys))
            ORDER BY w.row_key LIMIT reembed.max_rows))
        RETURNING l.row_key)
    SELECT count(*), max(m.row_key) INTO changed, last FROM marked AS m;
    audit_id := entry.audit_id;
    PERFORM embedsidecar.end_action(audit_id, 'reembed_requested', changed, last);
    IF reembed.keys IS NOT NULL THEN
        remaining := 0;
        PERFORM embedsidecar.add_looks(id, reembed.keys);
        RETURN;
    END IF;
    -- With each portion, so that its rows are embedded even if no further portion follows.
    PERFORM embedsidecar.ask_for_scan(id, 'every row is embedded again, as requested', audit_id);
    IF NOT EXISTS (SELECT FROM embedsidecar.ledger AS l
                   WHERE l.pipeline_id = id AND l.text_hash IS NOT NULL AND l.row_key > last) THEN
        remaining := 0;
    ELSIF reembed.continues IS NULL THEN
        remaining := (SELECT count(*) FROM embedsidecar.ledger AS l
                      WHERE  l.pipeline_id = id AND l.text_hash IS NOT NULL AND l.row_key > last);
    END IF;
END $$;
COMMENT ON FUNCTION embedsidecar.reembed IS
    'Embed rows again even if their texts did not change: these, or every row of the pipeline, in portions; each '
    'portion requests the scan that finds them. The vectors stay until the new ones arrive.';

-- A reload of a plugin is not a statement, so the sidecar records it.
CREATE OR REPLACE FUNCTION embedsidecar.note_reload(plugin text, model text, version text, result text, said_by text)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    entry embedsidecar.audit_log;
BEGIN
    IF note_reload.result IS NULL OR note_reload.result NOT IN ('reloaded', 'refused') THEN
        RAISE EXCEPTION 'note_reload: result: expected reloaded or refused, not %', coalesce(note_reload.result, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    entry := embedsidecar.begin_action('reload', NULL, jsonb_build_object('plugin', left(note_reload.plugin, 200),
        'model', left(note_reload.model, 200), 'version', left(note_reload.version, 200)), note_reload.said_by, false);
    PERFORM embedsidecar.end_action(entry.audit_id, note_reload.result, 0);
    RETURN entry.audit_id;
END $$;
COMMENT ON FUNCTION embedsidecar.note_reload IS
    'For sidecars: records in the audit that a plugin was reloaded, or that this was refused.';
