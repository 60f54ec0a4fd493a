-- Whether vectors have caught up, and waiting for it. Docs: docs/sql.md.

CREATE OR REPLACE FUNCTION embedsidecar.acts_as(member oid, role oid) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT pg_has_role(acts_as.member, acts_as.role, CASE WHEN current_setting('server_version_num')::integer < 160000
    THEN 'MEMBER' ELSE 'USAGE, SET, MEMBER WITH ADMIN OPTION' END)
$$;
COMMENT ON FUNCTION embedsidecar.acts_as(oid, oid) IS
    'Whether the first role is the second, or may act as it. From PostgreSQL 16 on, a member with neither INHERIT, SET '
    'nor ADMIN may not.';

-- Invalid hours of one pipeline must not fail the statements of all: updates of the server add and remove time zones.
CREATE OR REPLACE FUNCTION embedsidecar.minute_of_week(zone text) RETURNS integer
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (SELECT (extract(isodow FROM n.here)::integer - 1) * 1440 + extract(hour
        FROM n.here)::integer * 60 + extract(minute FROM n.here)::integer
            FROM (SELECT now() AT TIME ZONE minute_of_week.zone) AS n (here));
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN NULL;
END $$;
COMMENT ON FUNCTION embedsidecar.minute_of_week IS
    'The minute of the week in a time zone, counted from Monday 00:00; NULL: the server does not know the zone.';

-- Its names are bound now, and it is inlined: a pipeline that always works costs a comparison with NULL.
CREATE OR REPLACE FUNCTION embedsidecar.is_open(active_minutes int4multirange, active_zone text,
    open_until timestamptz) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
RETURN active_minutes IS NULL OR coalesce(open_until > now(), false)
       OR coalesce(active_minutes @> embedsidecar.minute_of_week(active_zone), false);
COMMENT ON FUNCTION embedsidecar.is_open IS
    'Whether a pipeline is within its hours, or works outside of them on request.';

-- Progress.
CREATE OR REPLACE FUNCTION embedsidecar.backlog(pipeline text DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    ids integer[] := CASE WHEN backlog.pipeline IS NULL THEN ARRAY(SELECT p.pipeline_id FROM embedsidecar.pipeline AS p)
                          ELSE ARRAY[embedsidecar.pipeline_meant(backlog.pipeline)] END;
BEGIN
    RETURN (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'todo'
        AND t.pipeline_id = ANY (ids) LIMIT 1000000) AS c)
         + (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'retrying'
             AND t.pipeline_id = ANY (ids) LIMIT 1000000) AS c)
         + (SELECT count(*) FROM (SELECT FROM embedsidecar.aside AS a WHERE a.pipeline_id = ANY (ids)
             LIMIT 1000000) AS c);
END $$;
COMMENT ON FUNCTION embedsidecar.backlog IS
    'How many rows of a pipeline, or of all, wait, are being embedded or wait for a retry; each kind is counted up to '
    'a million. For autoscalers.';

CREATE OR REPLACE FUNCTION embedsidecar.waited_for(pipeline text) RETURNS integer[]
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    ids integer[] := CASE WHEN waited_for.pipeline IS NULL THEN ARRAY(SELECT p.pipeline_id
        FROM embedsidecar.pipeline AS p WHERE p.beside IS NULL)
                          ELSE ARRAY[embedsidecar.pipeline_meant(waited_for.pipeline)] END;
BEGIN
    IF cardinality(ids) = 0 THEN
        RAISE EXCEPTION 'no pipeline is set up in this database' USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'run embedsidecar init';
    END IF;
    RETURN ids;
END $$;
COMMENT ON FUNCTION embedsidecar.waited_for IS 'The pipelines that caught_up, wait_for and wait_until check.';

-- how_far: the progress of pipelines with everything before an LSN. A checkpoint of another server, which came with a
-- dump, does not count. If the streamer has not loaded a pipeline's current definition, changes may be missed.
CREATE OR REPLACE FUNCTION embedsidecar.how_far(ids integer[], lsn pg_lsn, OUT decoded boolean, OUT done boolean,
    OUT resting text, OUT left_over text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    waits  boolean;
    scans  boolean;
    routed boolean;
    aside  boolean;
BEGIN
    SELECT bool_and(c.lsn >= how_far.lsn AND c.system_id = (SELECT s.system_identifier::text
        FROM pg_control_system() AS s)),
           bool_and(EXISTS (SELECT FROM embedsidecar.route AS r WHERE r.pipeline_id = p.pipeline_id
               AND r.generation = p.generation)),
           string_agg(format('%s is %s', p.name, embedsidecar.rests(p)), ', '
               ORDER BY p.name) FILTER (WHERE embedsidecar.rests(p) IS NOT NULL)
    INTO   decoded, routed, resting
    FROM   embedsidecar.pipeline AS p JOIN embedsidecar.lsn_checkpoint AS c ON c.slot_name = p.slot_name
    WHERE  p.pipeline_id = ANY (how_far.ids);
    -- A separate statement, which sees the tasks of changes before the checkpoint that was just read. One statement,
    -- because changes that were set aside become tasks or scans.
    SELECT EXISTS (SELECT FROM embedsidecar.task AS t
               WHERE t.state IN ('todo', 'retrying') AND t.pipeline_id = ANY (how_far.ids)
                   AND t.first_lsn <= how_far.lsn AND NOT coalesce(t.error_class IS NULL AND t.due_at > now(), false)),
           EXISTS (SELECT FROM embedsidecar.aside AS a WHERE a.pipeline_id = ANY (how_far.ids)
               AND a.first_lsn <= how_far.lsn),
           EXISTS (SELECT FROM embedsidecar.scan AS s WHERE s.pipeline_id = ANY (how_far.ids) AND s.phase <> 'done')
    INTO   waits, aside, scans;
    done := coalesce(decoded AND routed AND NOT scans AND NOT waits AND NOT aside AND resting IS NULL, false);
    left_over := concat_ws(', ', CASE WHEN NOT decoded THEN 'the latest changes are not read yet' END, CASE
        WHEN NOT routed THEN 'the streamer does not know a pipeline yet' END,
        CASE WHEN scans THEN 'a scan is still running' END, CASE WHEN waits THEN 'rows are left to embed' END,
        CASE WHEN aside THEN 'changes wait, because an open transaction holds the queue: embedsidecar.health names it'
            END, resting);
END $$;
COMMENT ON FUNCTION embedsidecar.how_far IS 'For caught_up, wait_for and wait_until: the progress of pipelines.';

CREATE OR REPLACE FUNCTION embedsidecar.caught_up(lsn pg_lsn DEFAULT NULL, pipeline text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (SELECT h.done FROM embedsidecar.how_far(embedsidecar.waited_for(caught_up.pipeline),
        coalesce(caught_up.lsn, CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
            ELSE pg_current_wal_insert_lsn() END)) AS h);
END $$;
COMMENT ON FUNCTION embedsidecar.caught_up IS
    'Whether every row of a pipeline, or of all, that was committed before an LSN (default: now) has its vector. Dead '
    'letters, cancelled rows and rows scheduled for later are not waited for: embedsidecar.tasks has them. A pipeline '
    'that is paused or cannot work is never caught up. An idle streamer reports its position late: '
    'embedsidecar.wait_for asks it.';

CREATE OR REPLACE FUNCTION embedsidecar.wait_for(lsn pg_lsn DEFAULT NULL, timeout interval DEFAULT '5s',
    pipeline text DEFAULT NULL) RETURNS boolean
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
            USING ERRCODE = 'invalid_parameter_value',
                HINT = 'a transaction that waits keeps dead rows from being cleaned up: embedsidecar wait waits '
                'without one';
    END IF;
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'wait_for: this server is a standby, which cannot ask the streamer'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                HINT = 'wait on the primary; here, embedsidecar.caught_up(lsn) shows whether the vectors have arrived';
    END IF;
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'wait_for: a % transaction never sees changes that happen while it waits',
            upper(current_setting('transaction_isolation'))
            USING ERRCODE = 'object_not_in_prerequisite_state',
                HINT = 'call it in a transaction that is READ COMMITTED';
    END IF;
    ids := embedsidecar.waited_for(wait_for.pipeline);
    -- A role that may search, but not see the progress, waits only for tables that it may read, and sees no others.
    IF NOT EXISTS (SELECT FROM pg_roles AS r WHERE embedsidecar.acts_as(quote_ident(session_user)::regrole, r.oid)
                   AND has_function_privilege(r.oid, 'embedsidecar.how_far(integer[], pg_lsn)', 'EXECUTE')) THEN
        ids := ARRAY(SELECT p.pipeline_id FROM embedsidecar.pipeline AS p
                     WHERE p.pipeline_id = ANY (ids) AND embedsidecar.reads(p.table_oid));
        IF cardinality(ids) = 0 THEN
            RAISE EXCEPTION 'wait_for: role "%" may not read the table of %', session_user,
                coalesce('pipeline "' || wait_for.pipeline || '"', 'any pipeline')
                USING ERRCODE = 'insufficient_privilege', HINT = coalesce((
                    SELECT format('GRANT SELECT (%s) ON %I.%I TO %I', (SELECT string_agg(quote_ident(k), ', ')
                               FROM unnest(p.key_columns) AS k), p.table_schema, p.table_name, session_user)
                    FROM   embedsidecar.pipeline AS p WHERE wait_for.pipeline IS NOT NULL
                           AND p.pipeline_id = embedsidecar.pipeline_meant(wait_for.pipeline)),
                    'name a pipeline whose table the role may read');
        END IF;
    END IF;
    -- A commit may not be flushed yet (synchronous_commit = off).
    target := coalesce(wait_for.lsn, pg_current_wal_insert_lsn());
    LOOP
        looked := clock_timestamp();
        SELECT h.* INTO state FROM embedsidecar.how_far(ids, target) AS h;
        IF state.done THEN
            RETURN true;
        END IF;
        IF state.resting IS NOT NULL THEN
            RAISE NOTICE 'not waited for: %',
                state.resting USING HINT =
                'embedsidecar.status shows more; embedsidecar.resume resumes a paused pipeline';
            RETURN false;
        END IF;
        IF clock_timestamp() >= began + wait_for.timeout THEN
            RAISE NOTICE 'not caught up with % in time: %', target, state.left_over;
            RETURN false;
        END IF;
        IF NOT state.decoded AND looked >= asked + again THEN
            asked := looked;
            again := least(2 * again, '1 s');
            PERFORM embedsidecar.call(), embedsidecar.hurry();
        END IF;
        PERFORM pg_sleep(least(greatest(pause, 2 * extract(epoch FROM clock_timestamp() - looked)), extract(epoch
            FROM began + wait_for.timeout - clock_timestamp())));
        pause := least(1.5 * pause, 0.25);
    END LOOP;
END $$;
COMMENT ON FUNCTION embedsidecar.wait_for IS
    'Read your own write: wait until every row of a pipeline, or of all, that was committed before an LSN (default: '
    'now) has its vector. Returns false after the timeout, or at once if a pipeline is paused or cannot work; a '
    'notice says why. Dead letters, cancelled rows and rows scheduled for later are not waited for. Without a name, a '
    'role that may only search waits for the pipelines of tables that it may read. Call it after the commit, in READ '
    'COMMITTED, on the primary. Before PostgreSQL 17 an idle server answers after up to five seconds; CALL '
    'embedsidecar.wait_until does not.';

-- A procedure with its owner's rights, or with a search_path of its own, may not commit. So this one has the invoker's
-- rights, and sets search_path after each commit: operators and functions never come from the caller's search_path.
CREATE OR REPLACE PROCEDURE embedsidecar.wait_until(lsn pg_lsn DEFAULT NULL, timeout interval DEFAULT '5s',
    pipeline text DEFAULT NULL, INOUT caught_up boolean DEFAULT NULL)
LANGUAGE plpgsql AS $$
DECLARE
    path   pg_catalog.text := pg_catalog.current_setting('search_path');
    ids    integer[];
    target pg_catalog.pg_lsn;
    state  pg_catalog.record;
    began  pg_catalog.timestamptz := pg_catalog.clock_timestamp();
    asked  pg_catalog.timestamptz := '-infinity';
    again  interval := '50 ms';
    pause  double precision := 0.001;
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    ids := embedsidecar.waited_for(pipeline);
    target := coalesce(lsn, pg_current_wal_insert_lsn());
    IF timeout IS NULL OR timeout < '0' THEN
        RAISE EXCEPTION 'wait_until: timeout: expected a time that is not negative, not %',
            coalesce(timeout::text, 'NULL') USING ERRCODE = 'invalid_parameter_value';
    END IF;
    LOOP
        SELECT h.* INTO state FROM embedsidecar.how_far(ids, target) AS h;
        caught_up := state.done;
        EXIT WHEN caught_up;
        IF state.resting IS NOT NULL THEN
            RAISE NOTICE 'not waited for: %',
                state.resting USING HINT =
                'embedsidecar.status shows more; embedsidecar.resume resumes a paused pipeline';
            EXIT;
        END IF;
        IF clock_timestamp() >= began + timeout THEN
            RAISE NOTICE 'not caught up with % in time: %', target, state.left_over;
            EXIT;
        END IF;
        IF clock_timestamp() >= asked + again THEN
            asked := clock_timestamp();
            again := least(2 * again, '1 s');
            PERFORM pg_notify('embedsidecar_waiting', target::text) WHERE pg_notification_queue_usage() < 0.5;
        END IF;
        COMMIT;
        PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
        PERFORM embedsidecar.call();
        PERFORM pg_sleep(pause);
        pause := least(1.5 * pause, 0.25);
    END LOOP;
    PERFORM pg_catalog.set_config('search_path', path, true);
END $$;
COMMENT ON PROCEDURE embedsidecar.wait_until IS
    'As wait_for, on every version of PostgreSQL. It commits, so call it outside of a transaction; it keeps none open '
    'while it waits.';

-- drain_state: the progress of pipelines with what was committed before an LSN. If a pipeline is resting, nothing more
-- happens once running is 0.
CREATE OR REPLACE FUNCTION embedsidecar.drain_state(ids integer[], lsn pg_lsn)
RETURNS TABLE (pipeline text, decoded boolean, remaining bigint, running bigint, failed bigint, cancelled bigint,
    put_off bigint, scanning boolean, resting text, sidecar boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    read integer[];
BEGIN
    SELECT coalesce(array_agg(p.pipeline_id), '{}') INTO read
    FROM   embedsidecar.pipeline AS p JOIN embedsidecar.lsn_checkpoint AS c ON c.slot_name = p.slot_name
    WHERE  p.pipeline_id = ANY (drain_state.ids) AND c.lsn >= drain_state.lsn
        AND c.system_id = (SELECT s.system_identifier::text FROM pg_control_system() AS s)
           AND EXISTS (SELECT FROM embedsidecar.route AS r WHERE r.pipeline_id = p.pipeline_id
               AND r.generation = p.generation);
    -- A separate statement, which sees the tasks of changes before the checkpoint that was just read.
    RETURN QUERY
    SELECT p.name, p.pipeline_id = ANY (read),
           (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'todo'
               AND t.pipeline_id = p.pipeline_id AND t.first_lsn <= drain_state.lsn LIMIT 100000) AS c)
           + (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'retrying'
               AND t.pipeline_id = p.pipeline_id AND t.first_lsn <= drain_state.lsn
               AND NOT (t.error_class IS NULL AND t.due_at > now()) LIMIT 100000) AS c)
           + (SELECT count(*) FROM (SELECT FROM embedsidecar.aside AS a WHERE a.pipeline_id = p.pipeline_id
               AND a.first_lsn <= drain_state.lsn LIMIT 100000) AS c),
           (SELECT coalesce(sum(cardinality(l.task_ids)), 0) FROM embedsidecar.lease AS l
            WHERE l.pipeline_id = p.pipeline_id AND l.epoch = p.lease_epoch AND l.leased_until >= now())::bigint,
           (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'failed'
               AND t.pipeline_id = p.pipeline_id AND t.first_lsn <= drain_state.lsn LIMIT 100000) AS c),
           (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'cancelled'
               AND t.pipeline_id = p.pipeline_id AND t.first_lsn <= drain_state.lsn LIMIT 100000) AS c),
           (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'retrying'
               AND t.pipeline_id = p.pipeline_id AND t.first_lsn <= drain_state.lsn
               AND t.error_class IS NULL AND t.due_at > now() LIMIT 100000) AS c),
           EXISTS (SELECT FROM embedsidecar.scan AS s WHERE s.pipeline_id = p.pipeline_id AND s.phase <> 'done'),
           embedsidecar.rests(p),
           EXISTS (SELECT FROM embedsidecar.worker AS w WHERE w.slot_name = p.slot_name AND embedsidecar.runs(w))
    FROM   embedsidecar.pipeline AS p
    WHERE  p.pipeline_id = ANY (drain_state.ids)
    ORDER BY p.name;
END $$;
COMMENT ON FUNCTION embedsidecar.drain_state IS 'For drain: the progress of pipelines.';

-- A procedure with its owner's rights, or with a search_path of its own, may not commit. So this one has the invoker's
-- rights, and sets search_path after each commit: operators and functions never come from the caller's search_path.
CREATE OR REPLACE PROCEDURE embedsidecar.drain(pipeline text DEFAULT NULL,
    timeout interval DEFAULT '5 min', INOUT drained boolean DEFAULT NULL, INOUT remaining bigint DEFAULT NULL,
    INOUT elapsed interval DEFAULT NULL)
LANGUAGE plpgsql AS $$
DECLARE
    path   pg_catalog.text := pg_catalog.current_setting('search_path');
    ids    integer[];
    target pg_catalog.pg_lsn;
    state  pg_catalog.record;
    began  pg_catalog.timestamptz := pg_catalog.clock_timestamp();
    looked pg_catalog.timestamptz;
    asked  pg_catalog.timestamptz := '-infinity';
    again  interval := '50 ms';
    pause  double precision := 0.005;
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    ids := embedsidecar.waited_for(pipeline);
    IF timeout IS NULL OR timeout < '0' THEN
        RAISE EXCEPTION 'drain: timeout: expected a time that is not negative, not %',
            coalesce(timeout::text, 'NULL') USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'drain: this server is a standby, which cannot ask the streamer' USING ERRCODE =
            'object_not_in_prerequisite_state', HINT = 'do it on the primary';
    END IF;
    target := pg_current_wal_insert_lsn();
    LOOP
        looked := clock_timestamp();
        SELECT bool_and(d.decoded) AS decoded, bool_and(d.decoded AND d.remaining = 0 AND NOT d.scanning) AS done,
            sum(d.remaining) AS remaining,
               bool_and(d.decoded AND (d.remaining = 0 AND NOT d.scanning OR d.resting IS NOT NULL
                   AND d.running = 0)) AS ends,
               string_agg(d.pipeline || ' is ' || d.resting, ', '
                   ORDER BY d.pipeline) FILTER (WHERE d.resting IS NOT NULL
                   AND (d.remaining > 0 OR d.scanning OR NOT d.decoded)) AS resting,
               bool_or(d.scanning) AS scanning, bool_or(NOT d.sidecar) AS alone
        INTO   state FROM embedsidecar.drain_state(ids, target) AS d;
        drained := state.done;
        remaining := state.remaining;
        elapsed := clock_timestamp() - began;
        EXIT WHEN drained;
        IF state.ends OR clock_timestamp() >= began + timeout THEN
            RAISE NOTICE 'not drained: %', concat_ws(', ', nullif(remaining, 0) || ' left', CASE
                WHEN NOT state.decoded THEN 'the latest changes are not read yet' END,
                CASE WHEN state.scanning THEN 'a scan is still running' END, state.resting, CASE
                    WHEN state.alone THEN 'no sidecar runs' END)
                USING HINT = 'embedsidecar.status shows more; embedsidecar.resume resumes a paused pipeline';
            EXIT;
        END IF;
        IF NOT state.decoded AND clock_timestamp() >= asked + again THEN
            asked := clock_timestamp();
            again := least(2 * again, '1 s');
            PERFORM pg_notify('embedsidecar_waiting', target::text) WHERE pg_notification_queue_usage() < 0.5;
        END IF;
        COMMIT;
        PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
        PERFORM embedsidecar.call();
        PERFORM pg_sleep(greatest(pause, 2 * extract(epoch FROM clock_timestamp() - looked)));
        pause := least(1.5 * pause, 0.25);
    END LOOP;
    PERFORM pg_catalog.set_config('search_path', path, true);
END $$;
COMMENT ON PROCEDURE embedsidecar.drain IS
    'Wait until everything that was committed before in a pipeline, or in all, is embedded. Returns whether it is, or '
    'how many rows are left after the timeout. For a paused pipeline it waits only for rows in work, and a notice '
    'says so. Dead letters, cancelled rows and rows scheduled for later are not waited for. It commits, so call it '
    'outside of a transaction.';
