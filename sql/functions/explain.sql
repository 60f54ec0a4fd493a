-- What happened to a row, and where its vector is. Docs: docs/sql.md.

-- A short text can be guessed from its hash: only roles that may read the text's columns in every row see hashes.
CREATE OR REPLACE FUNCTION embedsidecar.may_see_text(id integer) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT coalesce((
    SELECT bool_and(coalesce(has_schema_privilege(w.oid, c.relnamespace, 'USAGE')
           AND (SELECT bool_and(has_column_privilege(w.oid, c.oid, a.attnum, 'SELECT')) FROM pg_attribute AS a
                WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                    AND (array_position(t.uses, NULL) IS NOT NULL OR a.attname::text = ANY (t.uses)))
           AND (NOT c.relrowsecurity OR w.rolsuper OR w.rolbypassrls OR NOT c.relforcerowsecurity
               AND pg_has_role(w.oid, c.relowner, 'USAGE')), false))
    FROM   embedsidecar.pipeline AS p
           CROSS JOIN LATERAL (SELECT p.table_oid, CASE WHEN p.watched_columns IS NULL THEN '{NULL}'
                   ELSE (p.key_columns || p.watched_columns)::text[] END
               UNION ALL SELECT j.oid, j.uses FROM embedsidecar.joined_tables(p.joins) AS j) AS t (oid, uses)
           LEFT JOIN pg_class AS c ON c.oid = t.oid
           JOIN pg_roles AS w ON w.rolname = embedsidecar.asker()
    WHERE  p.pipeline_id = id), false)
$$;
COMMENT ON FUNCTION embedsidecar.may_see_text IS
    'Whether the caller may read everything that the texts of a pipeline are made from.';

-- row_facts: what queue, ledger and history have about a row, for the command and the function explain. It counts up to
-- 100,000 tasks before it, and reads the last five entries of its history.
CREATE OR REPLACE FUNCTION embedsidecar.row_facts(id integer, key text) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT jsonb_build_object('task', (
    SELECT jsonb_build_object(
           'state', CASE WHEN t.state <> 'todo' OR h.seconds_left IS NULL THEN t.state::text
               WHEN h.seconds_left >= 0 THEN 'in_progress' ELSE 'stale' END,
           'lane', (ARRAY['low', 'normal', 'high', 'urgent'])[t.lane + 1],
           'ahead', CASE WHEN t.state = 'todo' THEN
               (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS o
                    WHERE o.state = 'todo' AND o.pipeline_id = id AND o.lane = t.lane AND o.seq < t.seq
                          AND o.task_id NOT IN (SELECT unnest(l.task_ids) FROM embedsidecar.lease AS l
                              WHERE l.pipeline_id = id AND l.leased_until >= now())
                    LIMIT 100000) AS c)
               ELSE 0 END,
           'attempt', t.attempt, 'first_lsn', t.first_lsn, 'last_lsn', t.last_lsn, 'committed_at', t.committed_at,
           'committed_seconds_ago', extract(epoch FROM now() - t.committed_at), 'created_at', t.enqueued_at,
           'scheduled_at', t.due_at, 'started_at', CASE WHEN t.state = 'todo' AND h.leased_until IS NOT NULL
               THEN h.started_at ELSE t.started_at END,
           'finished_at', CASE WHEN t.state <> 'todo' OR h.leased_until IS NULL THEN t.finished_at END,
           'visible', pg_visible_in_snapshot(t.xid, pg_current_snapshot()),
           'next_try_seconds', CASE
               WHEN t.state = 'retrying' THEN greatest(extract(epoch FROM t.due_at - now()), 0) END,
           'leased_by', coalesce(h.instance, ''), 'leased_until', h.leased_until,
           'class', coalesce(t.error_class, ''), 'code', coalesce(t.error_code, ''), 'message',
               coalesce(t.error_message, ''))
    FROM   embedsidecar.task AS t
           LEFT JOIN LATERAL (
               SELECT coalesce(w.instance, 'worker ' || l.worker_id) AS instance, l.leased_until, l.started_at,
                   extract(epoch
                   FROM l.leased_until - now()) AS seconds_left
               FROM   embedsidecar.lease AS l
                      JOIN embedsidecar.pipeline AS p ON p.pipeline_id = l.pipeline_id AND p.lease_epoch = l.epoch
                      LEFT JOIN embedsidecar.worker AS w ON w.worker_id = l.worker_id
               WHERE  l.pipeline_id = id AND t.task_id = ANY (l.task_ids)
               ORDER  BY l.leased_until DESC LIMIT 1) AS h ON true
    WHERE  t.row_key = key AND t.pipeline_id = id),
'ledger', (
    SELECT jsonb_build_object('text_hash', CASE WHEN l.text_hash IS NULL THEN ''
        WHEN s.shown THEN encode(l.text_hash, 'hex') ELSE 'hidden' END,
           'source_hash', CASE WHEN s.shown THEN encode(l.source_hash, 'hex')
               ELSE 'hidden' END, 'generation', l.generation, 'lsn', l.lsn,
           'written_at', l.written_at, 'written_seconds_ago', extract(epoch FROM now() - l.written_at), 'anew',
               length(l.vector_hash) = 0, 'skipped', l.skipped IS NOT NULL, 'ignored', l.ignored,
           'vector', l.text_hash IS NOT NULL AND l.vector_hash <> '\x0000000000000000')
    FROM   embedsidecar.ledger AS l CROSS JOIN embedsidecar.may_see_text(id) AS s (shown) WHERE l.pipeline_id = id
        AND l.row_key = key),
'history', coalesce((
    SELECT jsonb_agg(jsonb_build_object('finished_at', o.finished_at, 'finished_seconds_ago', extract(epoch
        FROM now() - o.finished_at), 'outcome', o.outcome,
           'attempt', o.attempt, 'code', coalesce(o.error_code, ''), 'lsn', o.lsn, 'committed_at', o.committed_at,
               'created_at', o.created_at, 'scheduled_at', o.scheduled_at,
               'sidecar', coalesce(o.instance, ''),
           'started_at', o.finished_at - make_interval(secs => o.took_ms / 1000.0), 'took_ms', o.took_ms, 'generation',
               coalesce(o.generation, 0),
           'dims', CASE WHEN o.outcome = 'embedded' THEN o.dims ELSE 0 END, 'version', coalesce(o.version, ''))
               ORDER BY o.finished_at DESC)
    FROM  (SELECT h.*, w.instance, w.version, p.dims
           FROM   embedsidecar.history AS h LEFT JOIN embedsidecar.worker AS w ON w.worker_id = h.worker_id LEFT
               JOIN embedsidecar.pipeline AS p ON p.pipeline_id = h.pipeline_id
           WHERE h.pipeline_id = id AND h.row_key = key ORDER BY h.finished_at DESC LIMIT 5) AS o), '[]'))
$$;
COMMENT ON FUNCTION embedsidecar.row_facts IS
    'For explain: what queue, ledger and history have about a row, as JSON, without texts.';

-- row_verdict: s is a story as in the JSON of the command explain. Its row is null if the row itself was not read.
CREATE OR REPLACE FUNCTION embedsidecar.row_verdict(s jsonb, OUT verdict text, OUT sentence text, OUT hints text[])
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name     text := embedsidecar.shell_word(s ->> 'pipeline');
    one      text := name || ' ' || embedsidecar.shell_word(s ->> 'key');
    pipe     jsonb := s -> 'pipeline_state';
    works    boolean := (pipe ->> 'works')::boolean;
    idle     text := format('the pipeline is not at work: %s: %s', replace(pipe ->> 'state', '_', ' '),
        pipe ->> 'reason');
    ways     text[] := ARRAY(SELECT jsonb_array_elements_text(nullif(pipe -> 'hints', 'null')));
    "row"    jsonb := nullif(s -> 'row', 'null');
    task     jsonb := nullif(s -> 'task', 'null');
    ledger   jsonb := nullif(s -> 'ledger', 'null');
    vector   jsonb := nullif(s -> 'vector', 'null');
    wanted   boolean := ("row" ->> 'exists')::boolean AND ("row" ->> 'taken')::boolean
        AND NOT ("row" ->> 'empty')::boolean;
    stored   boolean := (vector ->> 'stored')::boolean;
    other    boolean := (ledger ->> 'generation')::integer <> (vector ->> 'pipeline_generation')::integer;
    trouble  text := concat_ws(' ', task ->> 'class', (task ->> 'code') || ':', task ->> 'message');
    retry    text[] := ARRAY['embedsidecar tasks retry ' || one,
                 format('SELECT * FROM embedsidecar.retry_failed(%L, keys => ARRAY[%L]);', s ->> 'pipeline',
                     s ->> 'key')];
    differs  text;
BEGIN
    hints := '{}';
    IF task ->> 'state' = 'cancelled' THEN
        verdict := 'cancelled';
        sentence := 'the row was cancelled, and has not changed since';
        hints := ARRAY['embedsidecar tasks requeue ' || one,
            format('SELECT * FROM embedsidecar.requeue(%L, ARRAY[%L]);', s ->> 'pipeline', s ->> 'key')];
        RETURN;
    ELSIF task ->> 'state' = 'failed' THEN
        verdict := 'dead_letter';
        sentence := 'the row is a dead letter: ' || trouble;
        hints := ARRAY['fix the cause; any change of the row retries it, and so do these'] || retry;
        RETURN;
    ELSIF NOT ("row" ->> 'read')::boolean THEN
        IF "row" ->> 'sqlstate' <> '' THEN
            verdict := 'unreadable';
            sentence := 'the row''s text or filter fails: SQLSTATE ' || ("row" ->> 'sqlstate');
            hints := ARRAY['fix the row or the pipeline''s expressions; a changed row is processed automatically'];
        ELSE
            verdict := 'unjudged';
            sentence := 'the row cannot be checked: ' || (pipe ->> 'reason');
            hints := ways;
        END IF;
        RETURN;
    ELSIF NOT (task ->> 'visible')::boolean THEN
        verdict := 'invisible';
        sentence := 'a change is committed, but not yet visible to other sessions';
        hints :=
            ARRAY['wait; if this lasts, the commit waits for a synchronous standby (wait_event SyncRep in '
            'pg_stat_activity)'];
        RETURN;
    END IF;
    -- Nothing to do, whatever waits.
    IF "row" IS NOT NULL THEN
        verdict := CASE WHEN NOT ("row" ->> 'exists')::boolean AND NOT stored AND ledger IS NULL THEN 'gone'
                        WHEN ("row" ->> 'exists')::boolean AND NOT ("row" ->> 'taken')::boolean
                            AND NOT stored THEN 'filtered'
                        WHEN ("row" ->> 'exists')::boolean AND ("row" ->> 'empty')::boolean AND NOT stored THEN 'empty'
                        WHEN (vector ->> 'skipped')::boolean AND task IS NULL THEN 'skipped'
                        WHEN (vector ->> 'current')::boolean THEN CASE WHEN stored THEN 'current'
                            ELSE 'no_token' END END;
    ELSIF task IS NULL AND NOT (ledger ->> 'anew')::boolean AND NOT other THEN
        verdict := CASE WHEN (ledger ->> 'skipped')::boolean THEN 'skipped'
            WHEN (ledger ->> 'vector')::boolean THEN 'current'
            WHEN ledger ->> 'text_hash' = '' THEN 'no_text' ELSE 'no_token' END;
    END IF;
    IF verdict IS NOT NULL THEN
        sentence := CASE verdict
            WHEN 'gone' THEN 'the row does not exist, and nothing is left of it'
            WHEN 'filtered' THEN 'the pipeline''s filter excludes the row: it has no vector by design'
            WHEN 'empty' THEN 'the row''s text is empty: it has no vector by design'
            WHEN 'no_text' THEN
                'the row had nothing to embed when it was last processed: its text is empty, or the filter excludes it'
            WHEN 'skipped' THEN
                'the writer of the row skipped it (embedsidecar.hint): the row keeps its previous vector, if it had one'
            WHEN 'no_token' THEN 'the model finds nothing to embed in the row''s text: it has no vector by design'
            ELSE CASE WHEN (ledger ->> 'ignored')::boolean AND verdict = 'current' THEN
                'the row''s text was edited since its vector was made, but the pipeline ignores such edits (ignore)'
                      WHEN "row" IS NULL THEN 'the vector matches the row''s text, with all changes before LSN '
                || (pipe ->> 'checkpoint')
                      ELSE 'the vector matches the row''s current text' END END
            || CASE WHEN task IS NOT NULL THEN ' (the row is queued to be checked again)'
                ELSE '' END
            || CASE WHEN "row" IS NULL AND NOT works THEN '; later changes wait: ' || idle ELSE '' END;
        IF verdict = 'skipped' THEN
            hints := ARRAY['embedsidecar tasks requeue ' || one,
                format('SELECT * FROM embedsidecar.requeue(%L, ARRAY[%L]);', s ->> 'pipeline', s ->> 'key')];
        END IF;
        RETURN;
    END IF;
    differs := CASE
        WHEN "row" IS NULL THEN CASE WHEN ledger IS NULL AND task IS NULL
            THEN 'nothing is known about a row with this key: it does not exist, its change has not been read, or no '
                'scan has reached it'
            ELSE 'the row will be checked again' END
        WHEN NOT ("row" ->> 'exists')::boolean THEN CASE
            WHEN stored THEN 'the row is deleted, but its vector still exists'
            ELSE 'the row is deleted, but its ledger entry still exists' END
        WHEN NOT wanted THEN 'the row should have no vector any more, but still has one'
        WHEN ledger IS NULL THEN 'the row has not been embedded yet'
        WHEN (ledger ->> 'anew')::boolean THEN 'the row will be embedded again'
        WHEN ledger ->> 'text_hash' = '' AND NOT (ledger ->> 'source_agrees')::boolean
            THEN 'the row had nothing to embed when it was last processed, and has changed since'
        WHEN NOT (ledger ->> 'text_agrees')::boolean THEN 'the row''s text has changed since its vector was made'
        WHEN other THEN 'the pipeline''s definition has changed since the row was last processed'
        WHEN NOT (ledger ->> 'source_agrees')::boolean THEN
            'the row has changed since it was last processed, but its text has not'
        WHEN NOT stored THEN 'the vector that was written is no longer there'
        WHEN NOT (vector ->> 'ours')::boolean THEN 'the destination has another vector than the one that was written'
        ELSE 'the vector is of an older definition of the pipeline' END;
    IF task ->> 'state' = 'in_progress' THEN
        verdict := 'working';
        sentence := differs || ', and ' || (task ->> 'leased_by') || ' is working on it';
        hints := ARRAY['wait; embedsidecar wait --caught-up returns when it is done'];
    ELSIF NOT works AND ("row" IS NOT NULL OR task IS NOT NULL) THEN
        verdict := 'not_at_work';
        sentence := differs || ', and ' || idle;
        hints := ways;
    ELSIF task ->> 'state' = 'retrying' THEN
        verdict := 'retrying';
        sentence := format('%s; it failed (%s) and is retried %s', differs, trouble,
            coalesce('in ' || embedsidecar.age_words((task ->> 'next_try_seconds')::double precision), 'soon'));
        hints := ARRAY['to retry it at once:'] || retry;
    ELSIF task IS NOT NULL THEN
        verdict := 'waiting';
        sentence := differs || ', and a task waits ' || embedsidecar.place_words(task);
        hints := ARRAY['wait; embedsidecar wait --caught-up returns when it is done'];
    ELSE
        verdict := CASE WHEN "row" IS NULL AND ledger IS NULL THEN 'unknown' ELSE 'not_queued' END;
        sentence := differs || CASE verdict WHEN 'unknown' THEN '' ELSE ', and it is not queued' END;
        hints := ARRAY[CASE
            WHEN pipe ->> 'state' IN ('unacknowledged', 'scan_waiting', 'backfill', 'comparing',
            'queue_held') THEN 'wait: ' || (pipe ->> 'reason')
            ELSE 'a change that was just committed is queued in a moment; otherwise run embedsidecar verify --repair '
                || name END];
    END IF;
END $$;
COMMENT ON FUNCTION embedsidecar.row_verdict IS 'State of a row, and what to do next.';

CREATE OR REPLACE FUNCTION embedsidecar.place_words(task jsonb) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
SELECT CASE WHEN (task ->> 'ahead')::bigint = 0 THEN 'with none before it' ELSE 'behind ' || (task ->> 'ahead')
       || CASE WHEN (task ->> 'ahead')::bigint >= 100000 THEN ' others or more'
           WHEN (task ->> 'ahead')::bigint = 1 THEN ' other' ELSE ' others' END END
       || ' in lane ' || (task ->> 'lane')
$$;
COMMENT ON FUNCTION embedsidecar.place_words IS 'The position of a task in the queue.';

-- tell: s is as in row_verdict.
CREATE OR REPLACE FUNCTION embedsidecar.tell(s jsonb) RETURNS TABLE (topic text, sentence text, facts jsonb)
LANGUAGE plpgsql IMMUTABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    pipe   jsonb := s -> 'pipeline_state';
    "row"  jsonb := nullif(s -> 'row', 'null');
    task   jsonb := nullif(s -> 'task', 'null');
    ledger jsonb := nullif(s -> 'ledger', 'null');
    vector jsonb := nullif(s -> 'vector', 'null');
    judged record;
    hint   text;
BEGIN
    topic := 'pipeline';
    sentence := format('%s embeds %s%s, generation %s%s.', s ->> 'pipeline', s ->> 'table',
        coalesce(' with ' || nullif(s ->> 'model', ''), ''),
        vector ->> 'pipeline_generation', CASE WHEN (pipe ->> 'works')::boolean THEN ''
        ELSE format('; it is not at work: %s: %s', replace(pipe ->> 'state', '_', ' '), pipe ->> 'reason') END);
    facts := jsonb_build_object('model', s -> 'model', 'generation', vector -> 'pipeline_generation') || pipe;
    RETURN NEXT;

    topic := 'changes';
    sentence := format('Changes before LSN %s have been read%s.', pipe ->> 'checkpoint',
        CASE WHEN (pipe ->> 'scanning')::boolean THEN '; a scan is still comparing every row' ELSE '' END);
    facts := jsonb_build_object('checkpoint', pipe -> 'checkpoint', 'scanning', pipe -> 'scanning');
    RETURN NEXT;

    IF "row" IS NOT NULL THEN
        topic := 'row';
        sentence := CASE
            WHEN NOT ("row" ->> 'read')::boolean THEN coalesce('The row exists, but its text or filter fails: SQLSTATE '
                || nullif("row" ->> 'sqlstate', ''),
                'The row was not read, because the pipeline does not fit its table')
            WHEN NOT ("row" ->> 'exists')::boolean THEN 'There is no row with this key'
            WHEN NOT ("row" ->> 'taken')::boolean THEN 'The row exists, but the pipeline''s filter excludes it'
            WHEN ("row" ->> 'empty')::boolean THEN 'The row exists and passes the filter, but its text is empty'
            WHEN "row" ->> 'characters' IS NULL AND "row" ->> 'bytes' = '0' THEN 'The row exists and passes the filter'
            WHEN "row" ->> 'characters' IS NULL THEN 'The row exists and passes the filter, and its text is large: '
                || pg_size_pretty(("row" ->> 'bytes')::bigint)
            ELSE format('The row exists and passes the filter, and its text has %s characters%s%s%s',
                "row" ->> 'characters',
                CASE WHEN ("row" ->> 'cut')::boolean THEN ' or more' ELSE '' END,
                coalesce(' in ' || ("row" #>> '{tokens,count}') || ' tokens', '')
                    || CASE WHEN ("row" #>> '{tokens,truncated}')::boolean THEN
                        format('; the model reads %s and cuts the rest', "row" #>> '{tokens,most}')
                        ELSE '' END,
                coalesce(' (hash ' || left(nullif("row" ->> 'text_hash', ''), 12) || ')', '')) END || '.';
        facts := "row";
        RETURN NEXT;
    END IF;

    topic := 'queue';
    sentence := CASE WHEN task IS NULL THEN 'It has no task in the queue.'
        ELSE format('It has a task because of %s %s ago%s The task %s%s%s.',
          CASE WHEN task ->> 'first_lsn' = '0/0' THEN 'a check that a scan or a user requested'
              ELSE 'a change that was committed' END,
          embedsidecar.age_words((task ->> 'committed_seconds_ago')::double precision),
          CASE WHEN task ->> 'first_lsn' = '0/0' THEN '.' ELSE format(' (LSN %s)%s.', task ->> 'first_lsn',
              CASE WHEN task -> 'last_lsn' <> task -> 'first_lsn' THEN ', with others up to LSN '
                  || (task ->> 'last_lsn') ELSE '' END) END,
          CASE task ->> 'state'
              WHEN 'failed' THEN 'is a dead letter: ' || concat_ws(' ', task ->> 'class', (task ->> 'code') || ':',
                  task ->> 'message')
              WHEN 'cancelled' THEN 'was cancelled'
              WHEN 'retrying' THEN format('failed and is retried %s: %s%s',
                  coalesce('in ' || embedsidecar.age_words((task ->> 'next_try_seconds')::double precision), 'soon'),
                  concat_ws(' ', task ->> 'class', (task ->> 'code') || ':', task ->> 'message'),
                  coalesce(' (' || (SELECT string_agg(l, '; ')
                      FROM jsonb_array_elements_text(nullif(task -> 'locked_by', 'null')) AS l) || ')', ''))
              WHEN 'in_progress' THEN format('is leased by %s until %s', task ->> 'leased_by',
                  task ->> 'leased_until')
              WHEN 'stale' THEN format('was leased by %s, whose lease has expired, and waits %s', task ->> 'leased_by',
                  embedsidecar.place_words(task))
              ELSE 'waits ' || embedsidecar.place_words(task) END,
          CASE WHEN (task ->> 'attempt')::integer > 0 THEN format(' (failed attempts: %s)', task ->> 'attempt')
              ELSE '' END,
          CASE WHEN (task ->> 'visible')::boolean THEN ''
              ELSE ', and its change is not yet visible to other sessions' END)
          || coalesce((SELECT format(' The task was created %s ago%s%s.', m.created,
                  '; its last attempt began ' || m.started || ' ago', ', and ended ' || m.finished || ' ago')
              FROM  (SELECT max(a.words) FILTER (WHERE a.what = 'created_at') AS created,
                            max(a.words) FILTER (WHERE a.what = 'started_at') AS started,
                            max(a.words) FILTER (WHERE a.what = 'finished_at') AS finished
                     FROM  (SELECT w.what, embedsidecar.age_words(greatest((task ->> 'committed_seconds_ago')::float8
                                + extract(epoch FROM (task ->> 'committed_at')::timestamptz
                                    - (task ->> w.what)::timestamptz)::float8, 0)) AS words
                            FROM unnest('{created_at,started_at,finished_at}'::text[]) AS w (what)
                            WHERE task ->> w.what IS NOT NULL) AS a) AS m), '')
          END;
    facts := task;
    RETURN NEXT;

    topic := 'ledger';
    sentence := CASE
        WHEN ledger IS NULL THEN 'The ledger has no entry: nothing was written for the row yet, or it was removed.'
        ELSE format('The ledger was last written %s ago (LSN %s): %s, generation %s%s%s.',
            embedsidecar.age_words((ledger ->> 'written_seconds_ago')::double precision),
            ledger ->> 'lsn', CASE WHEN ledger ->> 'text_hash' <> '' THEN 'text hash '
                || left(ledger ->> 'text_hash', 12) ELSE 'no text' END, ledger ->> 'generation',
            CASE WHEN ledger -> 'generation' <> vector -> 'pipeline_generation' THEN format(' (the pipeline''s is %s)',
                vector ->> 'pipeline_generation') ELSE '' END,
            CASE WHEN (ledger ->> 'anew')::boolean THEN ', to be embedded again'
                 WHEN "row" IS NULL THEN CASE WHEN (ledger ->> 'vector')::boolean THEN '' ELSE ', no vector' END
                 WHEN NOT ("row" ->> 'exists')::boolean OR NOT ("row" ->> 'read')::boolean THEN ''
                 WHEN NOT (ledger ->> 'text_agrees')::boolean THEN ', and the row''s text has changed since'
                 WHEN (ledger ->> 'source_agrees')::boolean THEN ', as the row is now'
                     ELSE ', and the row has changed since' END) END;
    facts := ledger;
    RETURN NEXT;

    IF "row" IS NOT NULL THEN
        topic := 'vector';
        sentence := CASE
            WHEN NOT ("row" ->> 'read')::boolean THEN 'The vector was not read'
            WHEN NOT (vector ->> 'stored')::boolean THEN 'The destination has no vector for the row'
            WHEN NOT (vector ->> 'ours')::boolean THEN
                'The destination has another vector than the one in the ledger'
            ELSE 'The destination has the vector that is in the ledger'
                || CASE WHEN (vector ->> 'generation')::integer > 0
                AND vector -> 'generation' <> vector -> 'pipeline_generation'
                    THEN format(', of generation %s (the pipeline''s is %s)', vector ->> 'generation',
                        vector ->> 'pipeline_generation') ELSE '' END
                || coalesce(', which is at least '
                    || embedsidecar.age_words((vector ->> 'age_at_least_seconds')::double precision) || ' old', '') END
                    || '.';
        facts := vector;
        RETURN NEXT;
    END IF;

    topic := 'history';
    facts := coalesce(nullif(s -> 'history', 'null'), '[]');
    sentence := coalesce('Recently, the latest first: ' || (SELECT string_agg(format('%s %s ago%s', h.o ->> 'outcome',
            embedsidecar.age_words((h.o ->> 'finished_seconds_ago')::double precision),
                coalesce(' (' || nullif(concat_ws(', ', nullif(h.o ->> 'code', ''),
                CASE h.o ->> 'outcome' WHEN 'reused' THEN 'its vector was known' END, 'in ' ||
                    CASE WHEN (h.o ->> 'took_ms')::bigint < 1000 THEN (h.o ->> 'took_ms') || ' ms'
                        ELSE embedsidecar.age_words((h.o ->> 'took_ms')::bigint / 1000.0) END,
                'generation ' || nullif(nullif(h.o ->> 'generation', '0'), vector ->> 'pipeline_generation')), '')
                    || ')', '')), ', ' ORDER BY h.n)
        FROM jsonb_array_elements(facts) WITH ORDINALITY AS h (o, n)) || '.',
            'No task of it has finished in the last day.');
    RETURN NEXT;

    SELECT * INTO judged FROM embedsidecar.row_verdict(s);
    topic := 'verdict';
    sentence := judged.sentence;
    facts := jsonb_build_object('verdict', judged.verdict, 'hints', judged.hints);
    RETURN NEXT;
    FOREACH hint IN ARRAY judged.hints LOOP
        topic := 'next step';
        sentence := hint;
        facts := NULL;
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION embedsidecar.tell IS 'A row''s story in sentences.';

-- The row itself is not read: text and filter are expressions of its table's owner and must not run with other rights.
CREATE OR REPLACE FUNCTION embedsidecar.explain(pipeline text, key text, OUT topic text, OUT sentence text,
    OUT facts jsonb) RETURNS SETOF record
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    id integer;
BEGIN
    IF explain.key IS NULL THEN
        RAISE EXCEPTION 'explain: name a row by its key' USING ERRCODE = 'null_value_not_allowed',
            HINT = 'keys are written as embedsidecar.tasks shows them; embedsidecar.row_key makes one of several '
            'columns';
    END IF;
    id := embedsidecar.pipeline_meant(explain.pipeline);
    RETURN QUERY SELECT t.topic, t.sentence, t.facts FROM embedsidecar.states(one => id) AS p CROSS
        JOIN LATERAL embedsidecar.tell(
        embedsidecar.row_facts(id, explain.key) || jsonb_build_object('pipeline', p.pipeline, 'key', explain.key,
            'table', format('%I.%I', p.table_schema, p.table_name),
            'model', p.model, 'vector', jsonb_build_object('pipeline_generation', p.generation), 'pipeline_state',
                jsonb_build_object(
            'state', p.state, 'reason', p.reason, 'hints', p.hints, 'works', p.works, 'checkpoint', p.checkpoint,
                'scanning', p.scan_phase <> 'done'))) AS t;
END $$;
COMMENT ON FUNCTION embedsidecar.explain IS
    'A row''s story in sentences, each with its facts: its open task, what was last written, what became of it '
    'recently, what follows and what to do next. The row itself is not read; the command embedsidecar explain does '
    'that. Keys are written as embedsidecar.tasks shows them.';

CREATE OR REPLACE FUNCTION embedsidecar.row_key(VARIADIC parts text[]) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
SELECT CASE WHEN cardinality(parts) = 1 THEN parts[1]
       ELSE (SELECT string_agg(replace(replace(u.part, '\', '\\'), '|', '\|'), '|' ORDER BY u.n)
           FROM unnest(parts) WITH ORDINALITY AS u (part, n)) END
$$;
COMMENT ON FUNCTION embedsidecar.row_key IS
    'The row_key of a key of several columns: embedsidecar.row_key(a::text, b). For a single column it is the '
    'value''s text.';

-- Users create a view of rows with their vectors themselves: while it exists, the table's owner cannot drop the columns
-- that it reads, or change their types.
CREATE OR REPLACE FUNCTION embedsidecar.view_sql(pipeline text, name text DEFAULT NULL) RETURNS text
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
        RAISE EXCEPTION 'the vectors of pipeline "%" are in its table: column %', p.name,
            p.destination_column USING ERRCODE = 'wrong_object_type', HINT = 'query the table itself';
    END IF;
    SELECT c.* INTO source FROM pg_class AS c WHERE c.oid = p.table_oid;
    SELECT c.* INTO vectors FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE  n.nspname = p.destination_schema AND c.relname = p.destination_table;
    SELECT string_agg(format('e.%1$I = d.%1$I', k.name), ' AND ' ORDER BY k.n) FILTER (WHERE a.attnum IS NOT NULL
        AND b.attnum IS NOT NULL) INTO matching
    FROM   unnest(p.key_columns) WITH ORDINALITY AS k (name, n)
           LEFT JOIN pg_attribute AS a ON a.attrelid = source.oid AND a.attname = k.name AND a.attnum > 0
               AND NOT a.attisdropped
           LEFT JOIN pg_attribute AS b ON b.attrelid = vectors.oid AND b.attname = k.name AND b.attnum > 0
               AND NOT b.attisdropped
    HAVING count(*) = count(a.attnum) AND count(*) = count(b.attnum);
    IF matching IS NULL THEN
        RAISE EXCEPTION 'pipeline "%" does not fit its tables',
            p.name USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'embedsidecar check shows why';
    END IF;
    IF current_setting('server_version_num')::integer < 150000 AND source.relrowsecurity THEN
        RAISE EXCEPTION
            'before PostgreSQL 15 a view shows every row that its owner sees, and %.% has row-level security',
            p.table_schema, p.table_name
            USING ERRCODE = 'feature_not_supported', HINT = 'join the table with its vectors in the query itself';
    END IF;
    called := coalesce(view_sql.name, left(p.destination_table, 58) || '_view');
    SELECT string_agg(format('d.%I', a.attname), ', ' ORDER BY a.attnum) INTO rows
    FROM   pg_attribute AS a WHERE a.attrelid = source.oid AND a.attnum > 0 AND NOT a.attisdropped;
    SELECT string_agg(format('e.%I', a.attname) || CASE WHEN EXISTS (SELECT FROM pg_attribute AS o
        WHERE o.attrelid = source.oid AND o.attname = a.attname AND o.attnum > 0 AND NOT o.attisdropped)
               THEN format(' AS %I', 'vector_' || a.attname) ELSE '' END, ', ' ORDER BY w.n) INTO ours
    FROM   unnest(CASE
        WHEN p.chunking <> '{}' THEN '{chunk_no,start_byte,end_byte,context,chunk_text,embedded_at,embedding}'::text[]
        ELSE '{embedded_at,embedding}' END)
               WITH ORDINALITY AS w (name, n)
           JOIN pg_attribute AS a ON a.attrelid = vectors.oid AND a.attname = w.name AND NOT a.attisdropped;
    RETURN format(E'CREATE VIEW %1$I.%2$I%3$s AS\nSELECT %4$s,\n       %5$s\n'
        'FROM   %6$I.%7$I AS d JOIN %1$I.%8$I AS e ON %9$s;\nCOMMENT ON VIEW %1$I.%2$I IS %10$L;',
        p.destination_schema, called, CASE
            WHEN current_setting('server_version_num')::integer >= 150000 THEN ' WITH (security_invoker = true)'
            ELSE '' END, rows, ours,
        source.relnamespace::regnamespace::name, source.relname, vectors.relname, matching,
        'embedsidecar: rows with their vectors, of pipeline ' || p.name
            || '. To drop a column of the table or change its type, first drop the view, then create it again with '
            'embedsidecar.view_sql.');
END $$;
COMMENT ON FUNCTION embedsidecar.view_sql IS
    'The statement that creates a view of a pipeline''s rows with their vectors, and chunks if it has any, beside its '
    'embedding table. Run it yourself, in psql with \gexec. Since PostgreSQL 15 the view checks the rights of the '
    'reader, including row-level security.';
