-- When pipelines work, how far each lane is, and what each sidecar did of late. Docs: docs/sql.md.

-- Windows of the week in which a pipeline works. Which minute it is says this server's clock, in each statement that hands out work.
ALTER TABLE embedsidecar.pipeline
    ADD COLUMN active_hours   text           NOT NULL DEFAULT '',
    ADD COLUMN active_minutes int4multirange,
    ADD COLUMN active_zone    text           NOT NULL DEFAULT 'UTC',
    ADD COLUMN open_until     timestamptz;
COMMENT ON COLUMN embedsidecar.pipeline.active_hours IS 'When it works, as configured; empty: always.';
COMMENT ON COLUMN embedsidecar.pipeline.active_minutes IS 'The same in minutes of the week, from Monday 00:00 on; NULL: all of them, none: only when somebody asks.';
COMMENT ON COLUMN embedsidecar.pipeline.active_zone IS 'The time zone of these.';
COMMENT ON COLUMN embedsidecar.pipeline.open_until IS 'Somebody has it work outside of its hours until then.';

-- Its names are bound now, and whoever calls it has it as part of his own statement: a pipeline that always works costs a comparison with NULL.
CREATE FUNCTION embedsidecar.is_open(active_minutes int4multirange, active_zone text, open_until timestamptz) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
RETURN active_minutes IS NULL OR coalesce(open_until > now(), false)
       OR active_minutes @> ((extract(isodow FROM now() AT TIME ZONE active_zone)::integer - 1) * 1440
                             + extract(hour FROM now() AT TIME ZONE active_zone)::integer * 60 + extract(minute FROM now() AT TIME ZONE active_zone)::integer);
COMMENT ON FUNCTION embedsidecar.is_open(int4multirange, text, timestamptz) IS 'Whether it is within a pipeline''s hours, or somebody has it work all the same.';

CREATE FUNCTION embedsidecar.resume_for(pipeline text, "time" interval, dry_run boolean DEFAULT false, said_by text DEFAULT NULL) RETURNS text
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

-- A new place for each, in the order of the old ones: whoever leases has passed those in the lane that they come to.
CREATE FUNCTION embedsidecar.prioritise(pipeline text, priority text, keys text[] DEFAULT NULL, max_rows integer DEFAULT 10000, dry_run boolean DEFAULT false,
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

CREATE OR REPLACE FUNCTION embedsidecar.how_far(ids integer[], lsn pg_lsn, OUT decoded boolean, OUT done boolean, OUT resting text, OUT left_over text)
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
           string_agg(format('%s is %s', p.name, CASE WHEN NOT (i.enabled AND p.enabled) THEN 'paused' WHEN p.status <> 'active' THEN p.status ELSE 'outside of its hours' END),
                   ', ' ORDER BY p.name)
               FILTER (WHERE NOT (i.enabled AND p.enabled AND p.status = 'active' AND embedsidecar.is_open(p.active_minutes, p.active_zone, p.open_until)))
    INTO   decoded, routed, scans, resting
    FROM   embedsidecar.pipeline AS p CROSS JOIN embedsidecar.installation AS i JOIN embedsidecar.lsn_checkpoint AS c ON c.slot_name = p.slot_name
    WHERE  p.pipeline_id = ANY (how_far.ids);
    -- In a statement of its own, which sees what became a task before the checkpoint that was just read.
    waits := EXISTS (SELECT FROM embedsidecar.task AS t WHERE t.state IN ('todo', 'retrying') AND t.pipeline_id = ANY (how_far.ids) AND t.first_lsn <= how_far.lsn);
    done := coalesce(decoded AND routed AND NOT scans AND NOT waits AND resting IS NULL, false);
    left_over := concat_ws(', ', CASE WHEN NOT decoded THEN 'changes are not read from the slot yet' END, CASE WHEN NOT routed THEN 'the streamer does not know a pipeline yet' END,
        CASE WHEN scans THEN 'a scan is not over' END, CASE WHEN waits THEN 'rows are left to embed' END, resting);
END $$;

CREATE OR REPLACE FUNCTION embedsidecar.drain_state(ids integer[], lsn pg_lsn)
RETURNS TABLE (pipeline text, decoded boolean, remaining bigint, running bigint, failed bigint, cancelled bigint, scanning boolean, resting text, sidecar boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    read integer[];
BEGIN
    SELECT coalesce(array_agg(p.pipeline_id), '{}') INTO read
    FROM   embedsidecar.pipeline AS p JOIN embedsidecar.lsn_checkpoint AS c ON c.slot_name = p.slot_name
    WHERE  p.pipeline_id = ANY (drain_state.ids) AND c.lsn >= drain_state.lsn AND c.system_id = (SELECT s.system_identifier::text FROM pg_control_system() AS s)
           AND EXISTS (SELECT FROM embedsidecar.route AS r WHERE r.pipeline_id = p.pipeline_id AND r.generation = p.generation);
    -- In a statement of its own, which sees what became a task before the checkpoint that was just read.
    RETURN QUERY
    SELECT p.name, p.pipeline_id = ANY (read),
           (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'todo' AND t.pipeline_id = p.pipeline_id AND t.first_lsn <= drain_state.lsn LIMIT 100000) AS c)
           + (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'retrying' AND t.pipeline_id = p.pipeline_id AND t.first_lsn <= drain_state.lsn LIMIT 100000) AS c),
           (SELECT coalesce(sum(cardinality(l.task_ids)), 0) FROM embedsidecar.lease AS l
            WHERE l.pipeline_id = p.pipeline_id AND l.epoch = p.lease_epoch AND l.leased_until >= now())::bigint,
           (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'failed' AND t.pipeline_id = p.pipeline_id AND t.first_lsn <= drain_state.lsn LIMIT 100000) AS c),
           (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'cancelled' AND t.pipeline_id = p.pipeline_id AND t.first_lsn <= drain_state.lsn LIMIT 100000) AS c),
           EXISTS (SELECT FROM embedsidecar.scan AS s WHERE s.pipeline_id = p.pipeline_id AND s.phase <> 'done'),
           CASE WHEN NOT (i.enabled AND p.enabled) THEN 'paused' WHEN p.status <> 'active' THEN p.status WHEN NOT embedsidecar.is_open(p.active_minutes, p.active_zone, p.open_until) THEN 'outside of its hours' END,
           embedsidecar.sidecar_runs(p.slot_name)
    FROM   embedsidecar.pipeline AS p CROSS JOIN embedsidecar.installation AS i
    WHERE  p.pipeline_id = ANY (drain_state.ids)
    ORDER BY p.name;
END $$;
CREATE OR REPLACE FUNCTION embedsidecar.explain(pipeline text, key text, OUT topic text, OUT sentence text, OUT facts jsonb) RETURNS SETOF record
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    p        embedsidecar.pipeline;
    point    embedsidecar.lsn_checkpoint;
    story    jsonb;
    task     jsonb;
    ledger   jsonb;
    place    text;
    resting  text;
    trouble  text;
    verdict  text;
    advice   text;
    running  boolean;
    scanning boolean;
BEGIN
    IF explain.key IS NULL THEN
        RAISE EXCEPTION 'explain: name a row by its key' USING ERRCODE = 'null_value_not_allowed', HINT = 'keys are written as embedsidecar.tasks shows them; embedsidecar.row_key makes one of several columns';
    END IF;
    SELECT q.* INTO p FROM embedsidecar.pipeline AS q WHERE q.pipeline_id = embedsidecar.pipeline_meant(explain.pipeline);
    SELECT c.* INTO point FROM embedsidecar.lsn_checkpoint AS c WHERE c.slot_name = p.slot_name;
    story := embedsidecar.row_facts(p.pipeline_id, explain.key);
    task := nullif(story -> 'task', 'null');
    ledger := nullif(story -> 'ledger', 'null');
    running := embedsidecar.sidecar_runs(p.slot_name);
    scanning := EXISTS (SELECT FROM embedsidecar.scan AS s WHERE s.pipeline_id = p.pipeline_id AND s.phase <> 'done');
    resting := CASE WHEN NOT (p.enabled AND (SELECT i.enabled FROM embedsidecar.installation AS i)) THEN 'it is paused'
                    WHEN NOT embedsidecar.is_open(p.active_minutes, p.active_zone, p.open_until) THEN 'it is outside of its hours (' || p.active_hours || ')'
                    WHEN p.status <> 'active' THEN 'it is ' || p.status || coalesce(': ' || nullif(p.status_detail, ''), '')
                    WHEN NOT running THEN 'no sidecar runs' END;
    trouble := concat_ws(' ', task ->> 'class', (task ->> 'code') || ':', task ->> 'message');
    place := CASE WHEN (task ->> 'ahead')::bigint = 0 THEN 'with none before it' ELSE 'behind ' || (task ->> 'ahead')
             || CASE WHEN (task ->> 'ahead')::bigint >= 100000 THEN ' others or more' WHEN (task ->> 'ahead')::bigint = 1 THEN ' other' ELSE ' others' END END || ' in lane ' || (task ->> 'lane');

    topic := 'pipeline';
    sentence := format('%s embeds %I.%I with %s, generation %s%s.', p.name, p.table_schema, p.table_name, p.model, p.generation, coalesce('; it is not at work, since ' || resting, ''));
    facts := jsonb_build_object('model', p.model, 'plugin', p.plugin, 'generation', p.generation, 'works', resting IS NULL);
    RETURN NEXT;

    topic := 'changes';
    sentence := format('Changes before LSN %s have been read, as of %s at least%s.', point.lsn, date_trunc('seconds', point.saved_at),
        CASE WHEN scanning THEN '; a scan that compares every row is not over' ELSE '' END);
    facts := jsonb_build_object('checkpoint', point.lsn, 'saved_at', point.saved_at, 'scanning', scanning);
    RETURN NEXT;

    topic := 'queue';
    sentence := CASE WHEN task IS NULL THEN 'Nothing waits for it in the queue.'
        ELSE CASE WHEN task ->> 'first_lsn' = '0/0' THEN format('A task stands for a look that a scan or somebody asked for, since %s ago.', round((task ->> 'committed_seconds_ago')::numeric) || ' s')
                  ELSE format('A task stands for a change that was committed %s ago (LSN %s)%s.',
                      round((task ->> 'committed_seconds_ago')::numeric) || ' s', task ->> 'first_lsn',
                      CASE WHEN task -> 'last_lsn' <> task -> 'first_lsn' THEN ', with others up to LSN ' || (task ->> 'last_lsn') ELSE '' END) END
          || ' It ' || CASE task ->> 'state'
                WHEN 'failed' THEN 'is a dead letter: ' || trouble WHEN 'cancelled' THEN 'was cancelled by somebody'
                WHEN 'retrying' THEN format('failed and is tried again in %s s: %s', round((task ->> 'next_try_seconds')::numeric), trouble)
                WHEN 'in_progress' THEN format('is in work by %s, until %s at most', task ->> 'leased_by', task ->> 'leased_until')
                WHEN 'stale' THEN format('was in work by %s, whose lease is over, and waits %s', task ->> 'leased_by', place)
                ELSE 'waits ' || place END
          || CASE WHEN (task ->> 'visible')::boolean THEN '' ELSE ', and is not yet seen by other sessions' END || '.' END;
    facts := task;
    RETURN NEXT;

    topic := 'ledger';
    sentence := CASE WHEN ledger IS NULL THEN 'The ledger has no entry: nothing was written for it yet, or what was is taken away.'
        ELSE format('The ledger was last written %s ago (LSN %s): %s, generation %s%s.', round((ledger ->> 'written_seconds_ago')::numeric) || ' s',
            ledger ->> 'lsn', CASE WHEN ledger ->> 'text_hash' <> '' THEN 'text hash ' || left(ledger ->> 'text_hash', 12) ELSE 'no text' END, ledger ->> 'generation',
            CASE WHEN (ledger ->> 'anew')::boolean THEN ', to be embedded anew' WHEN (ledger ->> 'vector')::boolean THEN '' ELSE ', no vector' END) END;
    facts := ledger;
    RETURN NEXT;

    topic := 'history';
    sentence := coalesce('Of late, the latest first: ' || (SELECT string_agg(format('%s %s ago%s', h.o ->> 'outcome', round((h.o ->> 'finished_seconds_ago')::numeric) || ' s',
            CASE WHEN h.o ->> 'code' <> '' THEN ' (' || (h.o ->> 'code') || ')' ELSE '' END), ', ' ORDER BY h.n) FROM jsonb_array_elements(story -> 'history') WITH ORDINALITY AS h (o, n)) || '.',
        'Nothing was done for it by way of the queue in the last day.');
    facts := story -> 'history';
    RETURN NEXT;

    verdict := CASE
        WHEN task ->> 'state' = 'cancelled' THEN 'cancelled' WHEN task ->> 'state' = 'failed' THEN 'dead_letter'
        WHEN NOT (task ->> 'visible')::boolean THEN 'invisible' WHEN task ->> 'state' = 'in_progress' THEN 'working'
        WHEN task IS NOT NULL AND resting IS NOT NULL THEN 'not_at_work'
        WHEN task ->> 'state' = 'retrying' THEN 'retrying' WHEN task IS NOT NULL THEN 'waiting'
        WHEN ledger IS NULL THEN 'unknown'
        WHEN (ledger ->> 'anew')::boolean OR (ledger ->> 'generation')::integer <> p.generation THEN 'not_queued'
        WHEN (ledger ->> 'vector')::boolean THEN 'current' WHEN ledger ->> 'text_hash' = '' THEN 'no_text' ELSE 'no_token' END;
    sentence := CASE verdict
        WHEN 'cancelled' THEN 'somebody took the row out of the queue, and it has not changed since' WHEN 'dead_letter' THEN 'the row is a dead letter: ' || trouble
        WHEN 'invisible' THEN 'a change is committed, and other sessions do not see it yet' WHEN 'working' THEN (task ->> 'leased_by') || ' is working on it'
        WHEN 'not_at_work' THEN 'it waits, and the pipeline is not at work: ' || resting WHEN 'retrying' THEN 'it failed and is tried again by itself: ' || trouble
        WHEN 'waiting' THEN 'it waits ' || place
        WHEN 'unknown' THEN 'nothing is known of a row with this key: there is none, or its change has not been read, or a scan has not come to it'
        WHEN 'not_queued' THEN 'the row is to be looked at again, and nothing waits in the queue' || CASE WHEN scanning THEN ': a scan will find it' ELSE '' END
        WHEN 'no_text' THEN 'the row had nothing to embed when it was last looked at: its text is empty, or the filter leaves it out'
        WHEN 'no_token' THEN 'the model finds nothing to embed in the row''s text: it has no vector by design'
        ELSE 'its vector is that of its text, for every change before LSN ' || point.lsn END || CASE WHEN verdict IN ('current', 'no_text', 'no_token') AND scanning THEN
            '; a scan that compares it once more is not over' ELSE '' END || CASE WHEN verdict IN ('current', 'no_text', 'no_token') AND resting IS NOT NULL THEN '; later changes wait, since ' || resting ELSE '' END;
    advice := CASE
        WHEN verdict = 'cancelled' THEN format('SELECT * FROM embedsidecar.requeue(%L, ARRAY[%L]);', p.name, explain.key)
        WHEN verdict IN ('dead_letter', 'retrying') THEN format('mend the cause; at once: SELECT * FROM embedsidecar.retry_failed(%L, keys => ARRAY[%L]);', p.name, explain.key)
        WHEN verdict = 'invisible' THEN 'wait; if that lasts, its commit waits for a synchronous standby (wait_event SyncRep in pg_stat_activity)'
        WHEN resting LIKE 'it is outside of its hours%' THEN format('SELECT embedsidecar.resume_for(%L, ''1 hour'');', p.name)
        WHEN resting = 'it is paused' THEN CASE WHEN p.enabled THEN 'SELECT embedsidecar.resume();' ELSE format('SELECT embedsidecar.resume(%L);', p.name) END
        WHEN resting IS NOT NULL THEN 'SELECT * FROM embedsidecar.health WHERE status <> ''ok'';'
        WHEN verdict IN ('working', 'waiting') THEN 'wait'
        WHEN verdict IN ('unknown', 'not_queued') AND NOT scanning THEN format('look at the row itself: embedsidecar explain; if it is there and stays unknown: SELECT embedsidecar.rescan(%L);', p.name)
        WHEN verdict IN ('unknown', 'not_queued') THEN 'wait for the scan: SELECT * FROM embedsidecar.progress;' END;
    topic := 'verdict';
    facts := jsonb_build_object('verdict', verdict);
    RETURN NEXT;
    IF advice IS NOT NULL THEN
        topic := 'next step';
        sentence := advice;
        facts := NULL;
        RETURN NEXT;
    END IF;
END $$;

-- What was done took this long, for this generation. When it began is finished_at less that.
ALTER TABLE embedsidecar.history ADD COLUMN took_ms integer, ADD COLUMN generation integer;
COMMENT ON COLUMN embedsidecar.history.took_ms IS 'From lease to end of its batch, in milliseconds; NULL: an older program wrote it.';
COMMENT ON COLUMN embedsidecar.history.generation IS 'Of the pipeline: what the vector was made with; NULL: as above, or it was not asked.';

CREATE OR REPLACE FUNCTION embedsidecar.row_facts(id integer, key text) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT jsonb_build_object('task', (
    SELECT jsonb_build_object(
           'state', CASE WHEN t.state <> 'todo' OR h.seconds_left IS NULL THEN t.state::text WHEN h.seconds_left >= 0 THEN 'in_progress' ELSE 'stale' END,
           'lane', (ARRAY['low', 'normal', 'high', 'urgent'])[t.lane + 1],
           'ahead', CASE WHEN t.state = 'todo' THEN
               (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS o
                    WHERE o.state = 'todo' AND o.pipeline_id = id AND o.lane = t.lane AND o.seq < t.seq
                          AND o.task_id NOT IN (SELECT unnest(l.task_ids) FROM embedsidecar.lease AS l WHERE l.pipeline_id = id AND l.leased_until >= now())
                    LIMIT 100000) AS c)
               ELSE 0 END,
           'attempt', t.attempt, 'first_lsn', t.first_lsn, 'last_lsn', t.last_lsn, 'committed_at', t.committed_at,
           'committed_seconds_ago', extract(epoch FROM now() - t.committed_at), 'enqueued_at', t.enqueued_at,
           'visible', pg_visible_in_snapshot(t.xid, pg_current_snapshot()),
           'next_try_seconds', CASE WHEN t.state = 'retrying' THEN greatest(extract(epoch FROM t.due_at - now()), 0) END,
           'leased_by', coalesce(h.instance, ''), 'leased_until', h.leased_until,
           'class', coalesce(t.error_class, ''), 'code', coalesce(t.error_code, ''), 'message', coalesce(t.error_message, ''))
    FROM   embedsidecar.task AS t
           LEFT JOIN LATERAL (
               SELECT coalesce(w.instance, 'worker ' || l.worker_id) AS instance, l.leased_until, extract(epoch FROM l.leased_until - now()) AS seconds_left
               FROM   embedsidecar.lease AS l
                      JOIN embedsidecar.pipeline AS p ON p.pipeline_id = l.pipeline_id AND p.lease_epoch = l.epoch
                      LEFT JOIN embedsidecar.worker AS w ON w.worker_id = l.worker_id
               WHERE  l.pipeline_id = id AND t.task_id = ANY (l.task_ids)
               ORDER  BY l.leased_until DESC LIMIT 1) AS h ON true
    WHERE  t.row_key = key AND t.pipeline_id = id),
'ledger', (
    SELECT jsonb_build_object('text_hash', coalesce(encode(l.text_hash, 'hex'), ''), 'source_hash', encode(l.source_hash, 'hex'), 'generation', l.generation, 'lsn', l.lsn,
           'written_at', l.written_at, 'written_seconds_ago', extract(epoch FROM now() - l.written_at), 'anew', length(l.vector_hash) = 0,
           'vector', l.text_hash IS NOT NULL AND l.vector_hash <> '\x0000000000000000')
    FROM   embedsidecar.ledger AS l WHERE l.pipeline_id = id AND l.row_key = key),
'history', coalesce((
    SELECT jsonb_agg(jsonb_build_object('finished_at', o.finished_at, 'finished_seconds_ago', extract(epoch FROM now() - o.finished_at), 'outcome', o.outcome,
           'attempt', o.attempt, 'code', coalesce(o.error_code, ''), 'lsn', o.lsn, 'committed_at', o.committed_at, 'sidecar', coalesce(o.instance, ''),
           'started_at', o.finished_at - make_interval(secs => o.took_ms / 1000.0), 'took_ms', o.took_ms, 'generation', coalesce(o.generation, 0),
           'dims', CASE WHEN o.outcome = 'embedded' THEN o.dims ELSE 0 END, 'version', coalesce(o.version, '')) ORDER BY o.finished_at DESC)
    FROM  (SELECT h.*, w.instance, w.version, p.dims
           FROM   embedsidecar.history AS h LEFT JOIN embedsidecar.worker AS w ON w.worker_id = h.worker_id LEFT JOIN embedsidecar.pipeline AS p ON p.pipeline_id = h.pipeline_id
           WHERE h.pipeline_id = id AND h.row_key = key ORDER BY h.finished_at DESC LIMIT 5) AS o), '[]'))
$$;

ALTER TABLE embedsidecar.worker
    ADD COLUMN succeeded_24h bigint NOT NULL DEFAULT 0,
    ADD COLUMN failed_24h    bigint NOT NULL DEFAULT 0,
    ADD COLUMN last_batch_at timestamptz;
COMMENT ON COLUMN embedsidecar.worker.succeeded_24h IS 'Rows that it finished in the last 24 hours; written with its sign of life, once a minute.';
COMMENT ON COLUMN embedsidecar.worker.failed_24h IS 'Rows that it made dead letters of meanwhile.';
COMMENT ON COLUMN embedsidecar.worker.last_batch_at IS 'When its last batch ended; NULL: there was none.';

CREATE OR REPLACE VIEW embedsidecar.status AS
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
        WHERE c.relkind = 'r' AND c.oid IN (SELECT t.relid FROM pg_partition_tree(p.table_oid) AS t UNION SELECT p.table_oid)) AS rows_estimate,
       embedsidecar.is_open(p.active_minutes, p.active_zone, p.open_until) AS is_open, p.active_hours
FROM   embedsidecar.pipeline AS p
       CROSS JOIN embedsidecar.installation AS i
       LEFT JOIN embedsidecar.scan AS s ON s.pipeline_id = p.pipeline_id
       LEFT JOIN pg_class AS tc ON tc.oid = p.table_oid
       LEFT JOIN pg_namespace AS tn ON tn.oid = tc.relnamespace;
COMMENT ON COLUMN embedsidecar.status.is_open IS 'It is within its hours, or somebody has it work all the same.';
COMMENT ON COLUMN embedsidecar.status.active_hours IS 'When it works: windows, or manual; empty: always.';

CREATE OR REPLACE VIEW embedsidecar.pipelines AS
SELECT p.name AS pipeline, p.pipeline_id, p.table_schema, p.table_name, p.source_columns, p.text_expression, p.filter_expression, p.key_columns, p.watched_columns,
       p.destination_column, p.destination_schema, p.destination_table, p.dims, p.plugin, p.model, p.fingerprint, p.chunking, p.generation, p.definition_version,
       (ARRAY['low', 'normal', 'high', 'urgent'])[p.lane + 1] AS priority, p.enabled, p.status, p.status_detail, p.slot_name, p.created_at, p.active_hours, p.open_until
FROM   embedsidecar.pipeline AS p;
COMMENT ON COLUMN embedsidecar.pipelines.active_hours IS 'When it works: windows, or manual; empty: always.';
COMMENT ON COLUMN embedsidecar.pipelines.open_until IS 'Somebody has it work outside of its hours until then.';

CREATE OR REPLACE VIEW embedsidecar.workers AS
SELECT w.worker_id, w.instance, w.version, w.slot_name, w.stream, w.stream_detail, w.problems, w.started_at, w.last_seen_at,
       w.last_seen_at > now() - interval '5 minutes' AND (w.session_name = '' OR EXISTS (SELECT FROM pg_stat_activity AS a
           WHERE a.datname = current_database() AND a.application_name = w.session_name AND a.pid <> pg_backend_pid())) AS runs,
       (SELECT coalesce(sum(cardinality(l.task_ids)), 0) FROM embedsidecar.lease AS l WHERE l.worker_id = w.worker_id AND l.leased_until >= now()) AS rows_leased,
       w.succeeded_24h + w.failed_24h AS processed_24h, w.succeeded_24h, w.failed_24h, w.last_batch_at
FROM   embedsidecar.worker AS w;
COMMENT ON COLUMN embedsidecar.workers.processed_24h IS 'Rows that it was done with in the last 24 hours: those of the next two columns.';
COMMENT ON COLUMN embedsidecar.workers.succeeded_24h IS 'Rows that it finished; up to about a minute ago.';
COMMENT ON COLUMN embedsidecar.workers.failed_24h IS 'Rows that it made dead letters of.';
COMMENT ON COLUMN embedsidecar.workers.last_batch_at IS 'When its last batch ended.';

CREATE OR REPLACE VIEW embedsidecar.health AS
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
SELECT 'hours', p.name, 'warn', CASE WHEN p.active_hours = 'manual' THEN 'works only when somebody asks' ELSE 'outside of its hours (' || p.active_hours || ')' END
       || ': changes are queued, nothing is embedded', format('SELECT embedsidecar.resume_for(%L, ''1 hour'');', p.name)
FROM   embedsidecar.pipeline AS p WHERE p.enabled AND NOT embedsidecar.is_open(p.active_minutes, p.active_zone, p.open_until)
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

CREATE VIEW embedsidecar.lanes AS
SELECT t.pipeline, t.priority, t.state, count(*) AS rows, extract(epoch FROM now() - min(t.committed_at))::double precision AS oldest_seconds,
       extract(epoch FROM now() - max(t.committed_at))::double precision AS newest_seconds,
       avg(extract(epoch FROM now() - t.committed_at))::double precision AS average_seconds
FROM   embedsidecar.tasks AS t
GROUP  BY t.pipeline, t.priority, t.state;
COMMENT ON VIEW embedsidecar.lanes IS 'How many rows wait, are embedded, failed or were cancelled, by pipeline, lane and state, and for how long. It counts all of them.';
COMMENT ON COLUMN embedsidecar.lanes.pipeline IS 'Its name.';
COMMENT ON COLUMN embedsidecar.lanes.priority IS 'The lane: low, normal, high or urgent.';
COMMENT ON COLUMN embedsidecar.lanes.state IS 'todo, in_progress, stale, retrying, failed or cancelled.';
COMMENT ON COLUMN embedsidecar.lanes.rows IS 'How many.';
COMMENT ON COLUMN embedsidecar.lanes.oldest_seconds IS 'Age of the oldest change among them.';
COMMENT ON COLUMN embedsidecar.lanes.newest_seconds IS 'Age of the newest.';
COMMENT ON COLUMN embedsidecar.lanes.average_seconds IS 'Of all of them.';

REVOKE ALL ON FUNCTION embedsidecar.is_open, embedsidecar.resume_for, embedsidecar.prioritise FROM PUBLIC;
-- Whoever may use what was there before may use what is new beside it: the roles that run a sidecar, those who read, and those who act.
DO $$
DECLARE
    owner name := (SELECT pg_get_userbyid(n.nspowner) FROM pg_namespace AS n WHERE n.nspname = 'embedsidecar');
    g     record;
    thing text;
BEGIN
    FOR g IN SELECT DISTINCT a.grantee::regrole AS role, a.privilege_type, c.relname FROM pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS a
             WHERE c.oid IN ('embedsidecar.task'::regclass, 'embedsidecar.tasks'::regclass, 'embedsidecar.status'::regclass) AND a.grantee NOT IN (0, c.relowner)
                   AND a.privilege_type = CASE c.relname WHEN 'task' THEN 'UPDATE' ELSE 'SELECT' END LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION embedsidecar.is_open TO %s', g.role);
        IF g.relname = 'tasks' THEN
            EXECUTE format('GRANT SELECT ON embedsidecar.lanes TO %s', g.role);
        END IF;
    END LOOP;
    FOR g IN SELECT DISTINCT a.grantee::regrole AS role FROM pg_proc AS f CROSS JOIN LATERAL aclexplode(f.proacl) AS a
             WHERE f.pronamespace = 'embedsidecar'::regnamespace AND f.proname = 'set_priority' AND a.grantee NOT IN (0, f.proowner) LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION embedsidecar.resume_for, embedsidecar.prioritise TO %s', g.role);
    END LOOP;
    IF owner <> current_user THEN
        FOREACH thing IN ARRAY ARRAY['VIEW embedsidecar.lanes', 'FUNCTION embedsidecar.is_open', 'FUNCTION embedsidecar.resume_for', 'FUNCTION embedsidecar.prioritise'] LOOP
            EXECUTE format('ALTER %s OWNER TO %I', thing, owner);
        END LOOP;
    END IF;
END $$;
---- create above / drop below ----
DROP VIEW embedsidecar.lanes;
-- The views keep the columns that they got, without what stood in them: a view loses columns only when it is made anew, with all its grants.
CREATE OR REPLACE VIEW embedsidecar.health AS
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
CREATE OR REPLACE VIEW embedsidecar.workers AS
SELECT w.worker_id, w.instance, w.version, w.slot_name, w.stream, w.stream_detail, w.problems, w.started_at, w.last_seen_at,
       w.last_seen_at > now() - interval '5 minutes' AND (w.session_name = '' OR EXISTS (SELECT FROM pg_stat_activity AS a
           WHERE a.datname = current_database() AND a.application_name = w.session_name AND a.pid <> pg_backend_pid())) AS runs,
       (SELECT coalesce(sum(cardinality(l.task_ids)), 0) FROM embedsidecar.lease AS l WHERE l.worker_id = w.worker_id AND l.leased_until >= now()) AS rows_leased,
       NULL::bigint AS processed_24h, NULL::bigint AS succeeded_24h, NULL::bigint AS failed_24h, NULL::timestamptz AS last_batch_at
FROM   embedsidecar.worker AS w;
CREATE OR REPLACE VIEW embedsidecar.pipelines AS
SELECT p.name AS pipeline, p.pipeline_id, p.table_schema, p.table_name, p.source_columns, p.text_expression, p.filter_expression, p.key_columns, p.watched_columns,
       p.destination_column, p.destination_schema, p.destination_table, p.dims, p.plugin, p.model, p.fingerprint, p.chunking, p.generation, p.definition_version,
       (ARRAY['low', 'normal', 'high', 'urgent'])[p.lane + 1] AS priority, p.enabled, p.status, p.status_detail, p.slot_name, p.created_at, NULL::text AS active_hours, NULL::timestamptz AS open_until
FROM   embedsidecar.pipeline AS p;
CREATE OR REPLACE VIEW embedsidecar.status AS
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
        WHERE c.relkind = 'r' AND c.oid IN (SELECT t.relid FROM pg_partition_tree(p.table_oid) AS t UNION SELECT p.table_oid)) AS rows_estimate,
       NULL::boolean AS is_open, NULL::text AS active_hours
FROM   embedsidecar.pipeline AS p
       CROSS JOIN embedsidecar.installation AS i
       LEFT JOIN embedsidecar.scan AS s ON s.pipeline_id = p.pipeline_id
       LEFT JOIN pg_class AS tc ON tc.oid = p.table_oid
       LEFT JOIN pg_namespace AS tn ON tn.oid = tc.relnamespace;
ALTER TABLE embedsidecar.worker DROP COLUMN last_batch_at, DROP COLUMN failed_24h, DROP COLUMN succeeded_24h;
CREATE OR REPLACE FUNCTION embedsidecar.row_facts(id integer, key text) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT jsonb_build_object('task', (
    SELECT jsonb_build_object(
           'state', CASE WHEN t.state <> 'todo' OR h.seconds_left IS NULL THEN t.state::text WHEN h.seconds_left >= 0 THEN 'in_progress' ELSE 'stale' END,
           'lane', (ARRAY['low', 'normal', 'high', 'urgent'])[t.lane + 1],
           'ahead', CASE WHEN t.state = 'todo' THEN
               (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS o
                    WHERE o.state = 'todo' AND o.pipeline_id = id AND o.lane = t.lane AND o.seq < t.seq
                          AND o.task_id NOT IN (SELECT unnest(l.task_ids) FROM embedsidecar.lease AS l WHERE l.pipeline_id = id AND l.leased_until >= now())
                    LIMIT 100000) AS c)
               ELSE 0 END,
           'attempt', t.attempt, 'first_lsn', t.first_lsn, 'last_lsn', t.last_lsn, 'committed_at', t.committed_at,
           'committed_seconds_ago', extract(epoch FROM now() - t.committed_at), 'enqueued_at', t.enqueued_at,
           'visible', pg_visible_in_snapshot(t.xid, pg_current_snapshot()),
           'next_try_seconds', CASE WHEN t.state = 'retrying' THEN greatest(extract(epoch FROM t.due_at - now()), 0) END,
           'leased_by', coalesce(h.instance, ''), 'leased_until', h.leased_until,
           'class', coalesce(t.error_class, ''), 'code', coalesce(t.error_code, ''), 'message', coalesce(t.error_message, ''))
    FROM   embedsidecar.task AS t
           LEFT JOIN LATERAL (
               SELECT coalesce(w.instance, 'worker ' || l.worker_id) AS instance, l.leased_until, extract(epoch FROM l.leased_until - now()) AS seconds_left
               FROM   embedsidecar.lease AS l
                      JOIN embedsidecar.pipeline AS p ON p.pipeline_id = l.pipeline_id AND p.lease_epoch = l.epoch
                      LEFT JOIN embedsidecar.worker AS w ON w.worker_id = l.worker_id
               WHERE  l.pipeline_id = id AND t.task_id = ANY (l.task_ids)
               ORDER  BY l.leased_until DESC LIMIT 1) AS h ON true
    WHERE  t.row_key = key AND t.pipeline_id = id),
'ledger', (
    SELECT jsonb_build_object('text_hash', coalesce(encode(l.text_hash, 'hex'), ''), 'source_hash', encode(l.source_hash, 'hex'), 'generation', l.generation, 'lsn', l.lsn,
           'written_at', l.written_at, 'written_seconds_ago', extract(epoch FROM now() - l.written_at), 'anew', length(l.vector_hash) = 0,
           'vector', l.text_hash IS NOT NULL AND l.vector_hash <> '\x0000000000000000')
    FROM   embedsidecar.ledger AS l WHERE l.pipeline_id = id AND l.row_key = key),
'history', coalesce((
    SELECT jsonb_agg(jsonb_build_object('finished_at', o.finished_at, 'finished_seconds_ago', extract(epoch FROM now() - o.finished_at), 'outcome', o.outcome,
           'attempt', o.attempt, 'code', coalesce(o.error_code, ''), 'lsn', o.lsn, 'committed_at', o.committed_at, 'sidecar', coalesce(o.instance, '')) ORDER BY o.finished_at DESC)
    FROM  (SELECT h.*, w.instance FROM embedsidecar.history AS h LEFT JOIN embedsidecar.worker AS w ON w.worker_id = h.worker_id
           WHERE h.pipeline_id = id AND h.row_key = key ORDER BY h.finished_at DESC LIMIT 5) AS o), '[]'))
$$;
ALTER TABLE embedsidecar.history DROP COLUMN generation, DROP COLUMN took_ms;
CREATE OR REPLACE FUNCTION embedsidecar.how_far(ids integer[], lsn pg_lsn, OUT decoded boolean, OUT done boolean, OUT resting text, OUT left_over text)
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
CREATE OR REPLACE FUNCTION embedsidecar.drain_state(ids integer[], lsn pg_lsn)
RETURNS TABLE (pipeline text, decoded boolean, remaining bigint, running bigint, failed bigint, cancelled bigint, scanning boolean, resting text, sidecar boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    read integer[];
BEGIN
    SELECT coalesce(array_agg(p.pipeline_id), '{}') INTO read
    FROM   embedsidecar.pipeline AS p JOIN embedsidecar.lsn_checkpoint AS c ON c.slot_name = p.slot_name
    WHERE  p.pipeline_id = ANY (drain_state.ids) AND c.lsn >= drain_state.lsn AND c.system_id = (SELECT s.system_identifier::text FROM pg_control_system() AS s)
           AND EXISTS (SELECT FROM embedsidecar.route AS r WHERE r.pipeline_id = p.pipeline_id AND r.generation = p.generation);
    -- In a statement of its own, which sees what became a task before the checkpoint that was just read.
    RETURN QUERY
    SELECT p.name, p.pipeline_id = ANY (read),
           (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'todo' AND t.pipeline_id = p.pipeline_id AND t.first_lsn <= drain_state.lsn LIMIT 100000) AS c)
           + (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'retrying' AND t.pipeline_id = p.pipeline_id AND t.first_lsn <= drain_state.lsn LIMIT 100000) AS c),
           (SELECT coalesce(sum(cardinality(l.task_ids)), 0) FROM embedsidecar.lease AS l
            WHERE l.pipeline_id = p.pipeline_id AND l.epoch = p.lease_epoch AND l.leased_until >= now())::bigint,
           (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'failed' AND t.pipeline_id = p.pipeline_id AND t.first_lsn <= drain_state.lsn LIMIT 100000) AS c),
           (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'cancelled' AND t.pipeline_id = p.pipeline_id AND t.first_lsn <= drain_state.lsn LIMIT 100000) AS c),
           EXISTS (SELECT FROM embedsidecar.scan AS s WHERE s.pipeline_id = p.pipeline_id AND s.phase <> 'done'),
           CASE WHEN NOT (i.enabled AND p.enabled) THEN 'paused' WHEN p.status <> 'active' THEN p.status END,
           embedsidecar.sidecar_runs(p.slot_name)
    FROM   embedsidecar.pipeline AS p CROSS JOIN embedsidecar.installation AS i
    WHERE  p.pipeline_id = ANY (drain_state.ids)
    ORDER BY p.name;
END $$;
CREATE OR REPLACE FUNCTION embedsidecar.explain(pipeline text, key text, OUT topic text, OUT sentence text, OUT facts jsonb) RETURNS SETOF record
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    p        embedsidecar.pipeline;
    point    embedsidecar.lsn_checkpoint;
    story    jsonb;
    task     jsonb;
    ledger   jsonb;
    place    text;
    resting  text;
    trouble  text;
    verdict  text;
    advice   text;
    running  boolean;
    scanning boolean;
BEGIN
    IF explain.key IS NULL THEN
        RAISE EXCEPTION 'explain: name a row by its key' USING ERRCODE = 'null_value_not_allowed', HINT = 'keys are written as embedsidecar.tasks shows them; embedsidecar.row_key makes one of several columns';
    END IF;
    SELECT q.* INTO p FROM embedsidecar.pipeline AS q WHERE q.pipeline_id = embedsidecar.pipeline_meant(explain.pipeline);
    SELECT c.* INTO point FROM embedsidecar.lsn_checkpoint AS c WHERE c.slot_name = p.slot_name;
    story := embedsidecar.row_facts(p.pipeline_id, explain.key);
    task := nullif(story -> 'task', 'null');
    ledger := nullif(story -> 'ledger', 'null');
    running := embedsidecar.sidecar_runs(p.slot_name);
    scanning := EXISTS (SELECT FROM embedsidecar.scan AS s WHERE s.pipeline_id = p.pipeline_id AND s.phase <> 'done');
    resting := CASE WHEN NOT (p.enabled AND (SELECT i.enabled FROM embedsidecar.installation AS i)) THEN 'it is paused'
                    WHEN p.status <> 'active' THEN 'it is ' || p.status || coalesce(': ' || nullif(p.status_detail, ''), '')
                    WHEN NOT running THEN 'no sidecar runs' END;
    trouble := concat_ws(' ', task ->> 'class', (task ->> 'code') || ':', task ->> 'message');
    place := CASE WHEN (task ->> 'ahead')::bigint = 0 THEN 'with none before it' ELSE 'behind ' || (task ->> 'ahead')
             || CASE WHEN (task ->> 'ahead')::bigint >= 100000 THEN ' others or more' WHEN (task ->> 'ahead')::bigint = 1 THEN ' other' ELSE ' others' END END || ' in lane ' || (task ->> 'lane');

    topic := 'pipeline';
    sentence := format('%s embeds %I.%I with %s, generation %s%s.', p.name, p.table_schema, p.table_name, p.model, p.generation, coalesce('; it is not at work, since ' || resting, ''));
    facts := jsonb_build_object('model', p.model, 'plugin', p.plugin, 'generation', p.generation, 'works', resting IS NULL);
    RETURN NEXT;

    topic := 'changes';
    sentence := format('Changes before LSN %s have been read, as of %s at least%s.', point.lsn, date_trunc('seconds', point.saved_at),
        CASE WHEN scanning THEN '; a scan that compares every row is not over' ELSE '' END);
    facts := jsonb_build_object('checkpoint', point.lsn, 'saved_at', point.saved_at, 'scanning', scanning);
    RETURN NEXT;

    topic := 'queue';
    sentence := CASE WHEN task IS NULL THEN 'Nothing waits for it in the queue.'
        ELSE CASE WHEN task ->> 'first_lsn' = '0/0' THEN format('A task stands for a look that a scan or somebody asked for, since %s ago.', round((task ->> 'committed_seconds_ago')::numeric) || ' s')
                  ELSE format('A task stands for a change that was committed %s ago (LSN %s)%s.',
                      round((task ->> 'committed_seconds_ago')::numeric) || ' s', task ->> 'first_lsn',
                      CASE WHEN task -> 'last_lsn' <> task -> 'first_lsn' THEN ', with others up to LSN ' || (task ->> 'last_lsn') ELSE '' END) END
          || ' It ' || CASE task ->> 'state'
                WHEN 'failed' THEN 'is a dead letter: ' || trouble WHEN 'cancelled' THEN 'was cancelled by somebody'
                WHEN 'retrying' THEN format('failed and is tried again in %s s: %s', round((task ->> 'next_try_seconds')::numeric), trouble)
                WHEN 'in_progress' THEN format('is in work by %s, until %s at most', task ->> 'leased_by', task ->> 'leased_until')
                WHEN 'stale' THEN format('was in work by %s, whose lease is over, and waits %s', task ->> 'leased_by', place)
                ELSE 'waits ' || place END
          || CASE WHEN (task ->> 'visible')::boolean THEN '' ELSE ', and is not yet seen by other sessions' END || '.' END;
    facts := task;
    RETURN NEXT;

    topic := 'ledger';
    sentence := CASE WHEN ledger IS NULL THEN 'The ledger has no entry: nothing was written for it yet, or what was is taken away.'
        ELSE format('The ledger was last written %s ago (LSN %s): %s, generation %s%s.', round((ledger ->> 'written_seconds_ago')::numeric) || ' s',
            ledger ->> 'lsn', CASE WHEN ledger ->> 'text_hash' <> '' THEN 'text hash ' || left(ledger ->> 'text_hash', 12) ELSE 'no text' END, ledger ->> 'generation',
            CASE WHEN (ledger ->> 'anew')::boolean THEN ', to be embedded anew' WHEN (ledger ->> 'vector')::boolean THEN '' ELSE ', no vector' END) END;
    facts := ledger;
    RETURN NEXT;

    topic := 'history';
    sentence := coalesce('Of late, the latest first: ' || (SELECT string_agg(format('%s %s ago%s', h.o ->> 'outcome', round((h.o ->> 'finished_seconds_ago')::numeric) || ' s',
            CASE WHEN h.o ->> 'code' <> '' THEN ' (' || (h.o ->> 'code') || ')' ELSE '' END), ', ' ORDER BY h.n) FROM jsonb_array_elements(story -> 'history') WITH ORDINALITY AS h (o, n)) || '.',
        'Nothing was done for it by way of the queue in the last day.');
    facts := story -> 'history';
    RETURN NEXT;

    verdict := CASE
        WHEN task ->> 'state' = 'cancelled' THEN 'cancelled' WHEN task ->> 'state' = 'failed' THEN 'dead_letter'
        WHEN NOT (task ->> 'visible')::boolean THEN 'invisible' WHEN task ->> 'state' = 'in_progress' THEN 'working'
        WHEN task IS NOT NULL AND resting IS NOT NULL THEN 'not_at_work'
        WHEN task ->> 'state' = 'retrying' THEN 'retrying' WHEN task IS NOT NULL THEN 'waiting'
        WHEN ledger IS NULL THEN 'unknown'
        WHEN (ledger ->> 'anew')::boolean OR (ledger ->> 'generation')::integer <> p.generation THEN 'not_queued'
        WHEN (ledger ->> 'vector')::boolean THEN 'current' WHEN ledger ->> 'text_hash' = '' THEN 'no_text' ELSE 'no_token' END;
    sentence := CASE verdict
        WHEN 'cancelled' THEN 'somebody took the row out of the queue, and it has not changed since' WHEN 'dead_letter' THEN 'the row is a dead letter: ' || trouble
        WHEN 'invisible' THEN 'a change is committed, and other sessions do not see it yet' WHEN 'working' THEN (task ->> 'leased_by') || ' is working on it'
        WHEN 'not_at_work' THEN 'it waits, and the pipeline is not at work: ' || resting WHEN 'retrying' THEN 'it failed and is tried again by itself: ' || trouble
        WHEN 'waiting' THEN 'it waits ' || place
        WHEN 'unknown' THEN 'nothing is known of a row with this key: there is none, or its change has not been read, or a scan has not come to it'
        WHEN 'not_queued' THEN 'the row is to be looked at again, and nothing waits in the queue' || CASE WHEN scanning THEN ': a scan will find it' ELSE '' END
        WHEN 'no_text' THEN 'the row had nothing to embed when it was last looked at: its text is empty, or the filter leaves it out'
        WHEN 'no_token' THEN 'the model finds nothing to embed in the row''s text: it has no vector by design'
        ELSE 'its vector is that of its text, for every change before LSN ' || point.lsn END || CASE WHEN verdict IN ('current', 'no_text', 'no_token') AND scanning THEN
            '; a scan that compares it once more is not over' ELSE '' END || CASE WHEN verdict IN ('current', 'no_text', 'no_token') AND resting IS NOT NULL THEN '; later changes wait, since ' || resting ELSE '' END;
    advice := CASE
        WHEN verdict = 'cancelled' THEN format('SELECT * FROM embedsidecar.requeue(%L, ARRAY[%L]);', p.name, explain.key)
        WHEN verdict IN ('dead_letter', 'retrying') THEN format('mend the cause; at once: SELECT * FROM embedsidecar.retry_failed(%L, keys => ARRAY[%L]);', p.name, explain.key)
        WHEN verdict = 'invisible' THEN 'wait; if that lasts, its commit waits for a synchronous standby (wait_event SyncRep in pg_stat_activity)'
        WHEN resting = 'it is paused' THEN CASE WHEN p.enabled THEN 'SELECT embedsidecar.resume();' ELSE format('SELECT embedsidecar.resume(%L);', p.name) END
        WHEN resting IS NOT NULL THEN 'SELECT * FROM embedsidecar.health WHERE status <> ''ok'';'
        WHEN verdict IN ('working', 'waiting') THEN 'wait'
        WHEN verdict IN ('unknown', 'not_queued') AND NOT scanning THEN format('look at the row itself: embedsidecar explain; if it is there and stays unknown: SELECT embedsidecar.rescan(%L);', p.name)
        WHEN verdict IN ('unknown', 'not_queued') THEN 'wait for the scan: SELECT * FROM embedsidecar.progress;' END;
    topic := 'verdict';
    facts := jsonb_build_object('verdict', verdict);
    RETURN NEXT;
    IF advice IS NOT NULL THEN
        topic := 'next step';
        sentence := advice;
        facts := NULL;
        RETURN NEXT;
    END IF;
END $$;
DROP FUNCTION embedsidecar.prioritise, embedsidecar.resume_for, embedsidecar.is_open;
ALTER TABLE embedsidecar.pipeline DROP COLUMN open_until, DROP COLUMN active_zone, DROP COLUMN active_minutes, DROP COLUMN active_hours;
