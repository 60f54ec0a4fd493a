-- What tells a person more: drain, a row's story, the state of every row, a view of rows with their vectors, notifications. Docs: docs/sql.md.

-- sidecar_runs is what the views say of it; sessions of the program read no view.
CREATE FUNCTION embedsidecar.sidecar_runs(slot name) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT EXISTS (SELECT FROM embedsidecar.worker AS w WHERE w.slot_name = slot AND w.last_seen_at > now() - interval '5 minutes'
               AND (w.session_name = '' OR EXISTS (SELECT FROM pg_stat_activity AS a
                    WHERE a.datname = current_database() AND a.application_name = w.session_name AND a.pid <> pg_backend_pid())))
$$;
COMMENT ON FUNCTION embedsidecar.sidecar_runs(name) IS 'Whether a sidecar for this slot was seen of late.';

-- drain_state: how far pipelines are with what was committed before an LSN. Where one rests, nothing more becomes of it when running is 0.
CREATE FUNCTION embedsidecar.drain_state(ids integer[], lsn pg_lsn)
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
COMMENT ON FUNCTION embedsidecar.drain_state(integer[], pg_lsn) IS 'What drain asks.';

-- With the invoker's rights: a procedure with those of its owner may not commit.
CREATE PROCEDURE embedsidecar.drain(pipeline text DEFAULT NULL, timeout interval DEFAULT '5 min', INOUT drained boolean DEFAULT NULL, INOUT remaining bigint DEFAULT NULL,
    INOUT elapsed interval DEFAULT NULL)
LANGUAGE plpgsql AS $$
DECLARE
    ids    integer[] := embedsidecar.waited_for(pipeline);
    target pg_lsn;
    state  record;
    began  timestamptz := clock_timestamp();
    looked timestamptz;
    asked  timestamptz := '-infinity';
    again  interval := '50 ms';
    pause  double precision := 0.005;
BEGIN
    IF timeout IS NULL OR timeout < '0' THEN
        RAISE EXCEPTION 'drain: timeout: expected a time that is not negative, not %', coalesce(timeout::text, 'NULL') USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'drain: this server is a standby, which cannot ask the streamer' USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'do it on the primary';
    END IF;
    target := pg_current_wal_insert_lsn();
    LOOP
        looked := clock_timestamp();
        SELECT bool_and(d.decoded) AS decoded, bool_and(d.decoded AND d.remaining = 0 AND NOT d.scanning) AS done, sum(d.remaining) AS remaining,
               bool_and(d.decoded AND (d.remaining = 0 AND NOT d.scanning OR d.resting IS NOT NULL AND d.running = 0)) AS ends,
               string_agg(d.pipeline || ' is ' || d.resting, ', ' ORDER BY d.pipeline) FILTER (WHERE d.resting IS NOT NULL AND (d.remaining > 0 OR d.scanning OR NOT d.decoded)) AS resting,
               bool_or(d.scanning) AS scanning, bool_or(NOT d.sidecar) AS alone
        INTO   state FROM embedsidecar.drain_state(ids, target) AS d;
        drained := state.done;
        remaining := state.remaining;
        elapsed := clock_timestamp() - began;
        EXIT WHEN drained;
        IF state.ends OR clock_timestamp() >= began + timeout THEN
            RAISE NOTICE 'not drained: %', concat_ws(', ', nullif(remaining, 0) || ' left', CASE WHEN NOT state.decoded THEN 'changes are not read from the slot yet' END,
                CASE WHEN state.scanning THEN 'a scan is not over' END, state.resting, CASE WHEN state.alone THEN 'no sidecar runs' END)
                USING HINT = 'embedsidecar.status tells more; embedsidecar.resume lets a paused one go on';
            EXIT;
        END IF;
        IF NOT state.decoded AND clock_timestamp() >= asked + again THEN
            asked := clock_timestamp();
            again := least(2 * again, '1 s');
            PERFORM pg_notify('embedsidecar_waiting', target::text);
        END IF;
        COMMIT;
        PERFORM pg_sleep(greatest(pause, 2 * extract(epoch FROM clock_timestamp() - looked)));
        pause := least(1.5 * pause, 0.25);
    END LOOP;
END $$;
COMMENT ON PROCEDURE embedsidecar.drain(text, interval, boolean, bigint, interval) IS 'Wait until nothing that was committed before is left to embed, of a pipeline or of all: drained, or how many rows are left after so long. Of a pipeline that is paused, what is in work is waited for and no more, and a notice says so. Dead letters and cancelled rows are not waited for. It commits, so it is called outside of a transaction.';

-- row_facts: what queue, ledger and history know of a row; embedsidecar explain and the function explain tell their stories from it.
-- Tasks before it are counted up to 100,000, and history is told of the last five looks.
CREATE FUNCTION embedsidecar.row_facts(id integer, key text) RETURNS jsonb
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
COMMENT ON FUNCTION embedsidecar.row_facts(integer, text) IS 'What queue, ledger and history know of a row, as JSON: what explain tells of. Never a text.';

-- The row itself is not looked at: text and filter are expressions of its table's owner, which nobody runs with the rights of another.
CREATE FUNCTION embedsidecar.explain(pipeline text, key text, OUT topic text, OUT sentence text, OUT facts jsonb) RETURNS SETOF record
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
COMMENT ON FUNCTION embedsidecar.explain(text, text) IS 'A row''s story in sentences, each with its facts: what waits for it, what was last written, what became of it of late, what follows from that and what to do next. The row itself is not looked at; the command embedsidecar explain does that. Keys are written as embedsidecar.tasks shows them.';

CREATE FUNCTION embedsidecar.row_key(VARIADIC parts text[]) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
SELECT CASE WHEN cardinality(parts) = 1 THEN parts[1]
       ELSE (SELECT string_agg(replace(replace(u.part, '\', '\\'), '|', '\|'), '|' ORDER BY u.n) FROM unnest(parts) WITH ORDINALITY AS u (part, n)) END
$$;
COMMENT ON FUNCTION embedsidecar.row_key(text[]) IS 'The row_key of a key of several columns: embedsidecar.row_key(a::text, b). That of a single column is its text.';

CREATE VIEW embedsidecar.row_state AS
SELECT p.name AS pipeline, l.row_key,
       CASE WHEN t.state IN ('failed', 'cancelled') THEN t.state::text
            WHEN length(l.vector_hash) = 0 THEN 'stale'
            WHEN l.text_hash IS NULL OR l.vector_hash = '\x0000000000000000' THEN CASE WHEN t.state IS NULL AND l.generation = p.generation THEN 'no_text' ELSE 'pending' END
            WHEN t.state IS NULL AND l.generation = p.generation THEN 'embedded' ELSE 'stale' END AS state,
       l.written_at, t.committed_at AS changed_at
FROM   embedsidecar.ledger AS l JOIN embedsidecar.pipeline AS p ON p.pipeline_id = l.pipeline_id
       LEFT JOIN embedsidecar.task AS t ON t.row_key = l.row_key AND t.pipeline_id = l.pipeline_id
UNION ALL
SELECT p.name, t.row_key, CASE WHEN t.state IN ('failed', 'cancelled') THEN t.state::text ELSE 'pending' END, NULL, t.committed_at
FROM   embedsidecar.task AS t JOIN embedsidecar.pipeline AS p ON p.pipeline_id = t.pipeline_id
WHERE  NOT EXISTS (SELECT FROM embedsidecar.ledger AS l WHERE l.pipeline_id = t.pipeline_id AND l.row_key = t.row_key);
COMMENT ON VIEW embedsidecar.row_state IS 'Where every row stands that was ever looked at or waits for it: one that is not here is new, or the backfill has not come to it. To be joined by the key of a table as text, or by embedsidecar.row_key of several columns; docs/sql.md says how.';
COMMENT ON COLUMN embedsidecar.row_state.pipeline IS 'Its name.';
COMMENT ON COLUMN embedsidecar.row_state.row_key IS 'The row''s key as PostgreSQL prints it; embedsidecar.row_key makes it of several columns.';
COMMENT ON COLUMN embedsidecar.row_state.state IS 'pending (waits, and has no vector), embedded, stale (waits, and its vector is of an older text or definition), failed (a dead letter), cancelled, or no_text (nothing to embed: the text is empty, or the filter leaves the row out).';
COMMENT ON COLUMN embedsidecar.row_state.written_at IS 'When the ledger was last written for it; NULL: never.';
COMMENT ON COLUMN embedsidecar.row_state.changed_at IS 'When the change that waits was committed; NULL: none waits.';

-- A view of rows with their vectors is for whoever asks to have: it depends on the columns of a table, whose owner may not drop one or give it
-- another type while the view is there. So nothing makes it by itself.
CREATE FUNCTION embedsidecar.view_sql(pipeline text, name text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    id       integer := embedsidecar.pipeline_meant(view_sql.pipeline);
    p        embedsidecar.pipeline;
    source   pg_class;
    vectors  pg_class;
    called   text;
    rows     text;
    ours     text;
    matching text;
BEGIN
    SELECT q.* INTO p FROM embedsidecar.pipeline AS q WHERE q.pipeline_id = id;
    IF p.destination_table IS NULL THEN
        RAISE EXCEPTION 'the vectors of pipeline "%" are in its table: column %', p.name, p.destination_column USING ERRCODE = 'wrong_object_type', HINT = 'query the table itself';
    END IF;
    SELECT c.* INTO source FROM pg_class AS c WHERE c.oid = p.table_oid;
    SELECT c.* INTO vectors FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE  n.nspname = p.destination_schema AND c.relname = p.destination_table;
    SELECT string_agg(format('e.%1$I = d.%1$I', k.name), ' AND ' ORDER BY k.n) FILTER (WHERE a.attnum IS NOT NULL AND b.attnum IS NOT NULL) INTO matching
    FROM   unnest(p.key_columns) WITH ORDINALITY AS k (name, n)
           LEFT JOIN pg_attribute AS a ON a.attrelid = source.oid AND a.attname = k.name AND a.attnum > 0 AND NOT a.attisdropped
           LEFT JOIN pg_attribute AS b ON b.attrelid = vectors.oid AND b.attname = k.name AND b.attnum > 0 AND NOT b.attisdropped
    HAVING count(*) = count(a.attnum) AND count(*) = count(b.attnum);
    IF matching IS NULL THEN
        RAISE EXCEPTION 'pipeline "%" does not fit its tables', p.name USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'embedsidecar check tells why';
    END IF;
    IF current_setting('server_version_num')::integer < 150000 AND source.relrowsecurity THEN
        RAISE EXCEPTION 'before PostgreSQL 15 a view shows every row that its owner sees, and %.% has row-level security', p.table_schema, p.table_name
            USING ERRCODE = 'feature_not_supported', HINT = 'join the table with its vectors in the query itself';
    END IF;
    called := coalesce(view_sql.name, left(p.destination_table, 58) || '_view');
    SELECT string_agg(format('d.%I', a.attname), ', ' ORDER BY a.attnum) INTO rows
    FROM   pg_attribute AS a WHERE a.attrelid = source.oid AND a.attnum > 0 AND NOT a.attisdropped;
    SELECT string_agg(format('e.%I', a.attname) || CASE WHEN EXISTS (SELECT FROM pg_attribute AS o WHERE o.attrelid = source.oid AND o.attname = a.attname AND o.attnum > 0 AND NOT o.attisdropped)
               THEN format(' AS %I', 'vector_' || a.attname) ELSE '' END, ', ' ORDER BY w.n) INTO ours
    FROM   unnest(CASE WHEN p.chunking <> '{}' THEN '{chunk_no,start_byte,end_byte,context,chunk_text,embedded_at,embedding}'::text[] ELSE '{embedded_at,embedding}' END)
               WITH ORDINALITY AS w (name, n)
           JOIN pg_attribute AS a ON a.attrelid = vectors.oid AND a.attname = w.name AND NOT a.attisdropped;
    RETURN format(E'CREATE VIEW %1$I.%2$I%3$s AS\nSELECT %4$s,\n       %5$s\nFROM   %6$I.%7$I AS d JOIN %1$I.%8$I AS e ON %9$s;\nCOMMENT ON VIEW %1$I.%2$I IS %10$L;',
        p.destination_schema, called, CASE WHEN current_setting('server_version_num')::integer >= 150000 THEN ' WITH (security_invoker = true)' ELSE '' END, rows, ours,
        source.relnamespace::regnamespace::name, source.relname, vectors.relname, matching,
        'embedsidecar: rows with their vectors, of pipeline ' || p.name || '. To drop a column of the table or give it another type: drop the view first, and make it again by embedsidecar.view_sql.');
END $$;
COMMENT ON FUNCTION embedsidecar.view_sql(text, text) IS 'The statement that makes a view of the rows of a pipeline with their vectors, and with their chunks where it has any, beside its embedding table; nobody runs it for you: in psql, \gexec does. Since PostgreSQL 15 the view asks for the rights of whoever reads it, row-level security included.';

-- Notifications, off by default: what tells of changes are triggers, and there are none until somebody turns them on.
CREATE FUNCTION embedsidecar.tell_event(event text, pipeline text, more jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF pg_notification_queue_usage() < 0.5 THEN -- a full one would fail the transaction; a listener that sleeps hears less
        PERFORM pg_notify('embedsidecar_changes', jsonb_strip_nulls(jsonb_build_object('event', event, 'pipeline', left(pipeline, 1000)) || more)::text);
    END IF;
END $$;
COMMENT ON FUNCTION embedsidecar.tell_event(text, text, jsonb) IS 'For the triggers of notify_changes: one notification.';

CREATE FUNCTION embedsidecar.tell_row() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_TABLE_NAME = 'installation' THEN
        PERFORM embedsidecar.tell_event(CASE WHEN NEW.enabled THEN 'resumed' ELSE 'paused' END, NULL, '{}');
    ELSIF TG_TABLE_NAME = 'scan' THEN
        PERFORM embedsidecar.tell_event('scan_done', (SELECT p.name FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = NEW.pipeline_id), jsonb_build_object('rows', NEW.rows_seen, 'differed', NEW.tasks_made));
    ELSIF TG_TABLE_NAME = 'worker' THEN
        IF NEW.stream IS DISTINCT FROM OLD.stream THEN
            PERFORM embedsidecar.tell_event('stream', NULL, jsonb_build_object('instance', left(NEW.instance, 1000), 'state', NEW.stream));
        END IF;
        IF NEW.problems IS DISTINCT FROM OLD.problems THEN
            PERFORM embedsidecar.tell_event('embedder', p.name, jsonb_build_object('instance', left(NEW.instance, 1000), 'state', coalesce(NEW.problems -> p.pipeline_id::text ->> 'code', 'works')))
            FROM embedsidecar.pipeline AS p
            WHERE NEW.problems -> p.pipeline_id::text ->> 'code' IS DISTINCT FROM OLD.problems -> p.pipeline_id::text ->> 'code';
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
COMMENT ON FUNCTION embedsidecar.tell_row() IS 'For the triggers of notify_changes: tells of a pipeline, a scan or a sidecar.';

CREATE FUNCTION embedsidecar.tell_dead_letters() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM embedsidecar.tell_event('dead_letters', p.name, jsonb_build_object('rows', d.rows, 'code', d.code))
    FROM  (SELECT n.pipeline_id, n.error_code AS code, count(*) AS rows FROM new_rows AS n JOIN old_rows AS o ON o.task_id = n.task_id
           WHERE n.state = 'failed' AND o.state <> 'failed' GROUP BY 1, 2) AS d
          JOIN embedsidecar.pipeline AS p ON p.pipeline_id = d.pipeline_id;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION embedsidecar.tell_dead_letters() IS 'For the triggers of notify_changes: tells how many rows were given up by a statement.';

CREATE FUNCTION embedsidecar.notify_changes("on" boolean, dry_run boolean DEFAULT false, said_by text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was    boolean := EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = 'embedsidecar.pipeline'::regclass AND t.tgname = 'tell');
    limit_ text := current_setting('lock_timeout');
    entry  embedsidecar.audit_log;
    result text;
BEGIN
    IF notify_changes."on" IS NULL THEN
        RAISE EXCEPTION 'notify_changes: expected true or false, not NULL' USING ERRCODE = 'null_value_not_allowed';
    END IF;
    result := CASE WHEN was = notify_changes."on" THEN 'already_' WHEN notify_changes.dry_run THEN 'would_be_' ELSE '' END || CASE WHEN notify_changes."on" THEN 'on' ELSE 'off' END;
    entry := embedsidecar.begin_action('notify_changes', NULL, jsonb_build_object('on', notify_changes."on"), notify_changes.said_by, NULL, 1, NULL, notify_changes.dry_run);
    IF notify_changes.dry_run THEN
        RETURN result;
    END IF;
    IF was <> notify_changes."on" THEN
        PERFORM set_config('lock_timeout', '2s', true); -- the stream and the workers wait behind us
        IF notify_changes."on" THEN
            CREATE TRIGGER tell AFTER UPDATE ON embedsidecar.task REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
                FOR EACH STATEMENT EXECUTE FUNCTION embedsidecar.tell_dead_letters();
            CREATE TRIGGER tell AFTER UPDATE ON embedsidecar.worker FOR EACH ROW
                WHEN (OLD.stream IS DISTINCT FROM NEW.stream OR OLD.problems IS DISTINCT FROM NEW.problems) EXECUTE FUNCTION embedsidecar.tell_row();
            CREATE TRIGGER tell AFTER UPDATE ON embedsidecar.scan FOR EACH ROW WHEN (OLD.phase <> 'done' AND NEW.phase = 'done') EXECUTE FUNCTION embedsidecar.tell_row();
            CREATE TRIGGER tell AFTER UPDATE ON embedsidecar.installation FOR EACH ROW WHEN (OLD.enabled <> NEW.enabled) EXECUTE FUNCTION embedsidecar.tell_row();
            CREATE TRIGGER tell AFTER UPDATE ON embedsidecar.pipeline FOR EACH ROW
                WHEN (OLD.enabled <> NEW.enabled OR OLD.status <> NEW.status) EXECUTE FUNCTION embedsidecar.tell_row();
        ELSE
            DROP TRIGGER tell ON embedsidecar.task;
            DROP TRIGGER tell ON embedsidecar.worker;
            DROP TRIGGER tell ON embedsidecar.scan;
            DROP TRIGGER tell ON embedsidecar.installation;
            DROP TRIGGER tell ON embedsidecar.pipeline;
        END IF;
        PERFORM set_config('lock_timeout', limit_, true);
    END IF;
    PERFORM embedsidecar.end_action(entry.audit_id, result, (was <> notify_changes."on")::integer, NULL);
    RETURN result;
END $$;
COMMENT ON FUNCTION embedsidecar.notify_changes(boolean, boolean, text) IS 'Turn notifications on, or off as they are at first: LISTEN embedsidecar_changes then tells of a pipeline that is paused, resumed or does not fit its table, of dead letters, of a scan that is over, and of streams and embedders that fail or work again, each as JSON, without keys or texts. Anybody in the database may listen. Returns on, off, already_on, already_off or, with dry_run, would_be_on or would_be_off.';

-- All of it belongs to the schema's owner; nobody may run a function before somebody grants it. Who reads the views, works or acts here may do so
-- by what is new as well.
DO $$
DECLARE
    owner name := (SELECT pg_get_userbyid(n.nspowner) FROM pg_namespace AS n WHERE n.nspname = 'embedsidecar');
    thing text;
    right_ record;
BEGIN
    FOREACH thing IN ARRAY ARRAY['FUNCTION embedsidecar.sidecar_runs', 'FUNCTION embedsidecar.drain_state', 'PROCEDURE embedsidecar.drain', 'FUNCTION embedsidecar.row_facts', 'FUNCTION embedsidecar.explain',
        'FUNCTION embedsidecar.row_key', 'FUNCTION embedsidecar.view_sql', 'FUNCTION embedsidecar.tell_event', 'FUNCTION embedsidecar.tell_row',
        'FUNCTION embedsidecar.tell_dead_letters', 'FUNCTION embedsidecar.notify_changes'] LOOP
        EXECUTE format('REVOKE ALL ON %s FROM PUBLIC', thing);
        IF owner <> current_user THEN
            EXECUTE format('ALTER %s OWNER TO %I', thing, owner);
        END IF;
    END LOOP;
    IF owner <> current_user THEN
        EXECUTE format('ALTER VIEW embedsidecar.row_state OWNER TO %I', owner);
    END IF;
    FOR right_ IN SELECT DISTINCT a.grantee::regrole AS role, c.relname AS on_
                  FROM   pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS a
                  WHERE  c.oid IN ('embedsidecar.status'::regclass, 'embedsidecar.task'::regclass) AND a.privilege_type = 'SELECT' AND a.grantee NOT IN (0, c.relowner) LOOP
        IF right_.on_ = 'task' THEN
            EXECUTE format('GRANT SELECT ON embedsidecar.row_state TO %s', right_.role);
            EXECUTE format('GRANT EXECUTE ON FUNCTION embedsidecar.row_facts, embedsidecar.drain_state TO %s', right_.role);
        ELSE
            EXECUTE format('GRANT SELECT ON embedsidecar.row_state TO %s', right_.role);
            EXECUTE format('GRANT EXECUTE ON FUNCTION embedsidecar.drain_state, embedsidecar.explain, embedsidecar.row_key, embedsidecar.view_sql TO %s', right_.role);
            EXECUTE format('GRANT EXECUTE ON PROCEDURE embedsidecar.drain TO %s', right_.role);
        END IF;
    END LOOP;
    FOR right_ IN SELECT DISTINCT a.grantee::regrole AS role FROM pg_proc AS p CROSS JOIN LATERAL aclexplode(p.proacl) AS a
                  WHERE p.oid = 'embedsidecar.pause'::regproc AND a.grantee NOT IN (0, p.proowner) LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION embedsidecar.notify_changes TO %s', right_.role);
    END LOOP;
END $$;
---- create above / drop below ----
DROP FUNCTION embedsidecar.notify_changes;
DROP FUNCTION embedsidecar.tell_row, embedsidecar.tell_dead_letters CASCADE; -- with the triggers, where they are on
DROP FUNCTION embedsidecar.tell_event;
DROP FUNCTION embedsidecar.view_sql;
DROP VIEW embedsidecar.row_state;
DROP FUNCTION embedsidecar.row_key, embedsidecar.explain, embedsidecar.row_facts;
DROP PROCEDURE embedsidecar.drain;
DROP FUNCTION embedsidecar.drain_state, embedsidecar.sidecar_runs;
