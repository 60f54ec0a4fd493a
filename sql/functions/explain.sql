-- What became of a row, and how its vector is found. Docs: docs/sql.md.

-- The hash of a short text is guessed by whoever tries texts: it is for those who may read the text themselves, each of its columns, whatever row it
-- is. Who asks is the role that the session has set: current_user is the owner of the function that calls this.
CREATE OR REPLACE FUNCTION embedsidecar.may_see_text(id integer) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT coalesce((
    SELECT has_schema_privilege(w.oid, c.relnamespace, 'USAGE')
           AND (SELECT bool_and(has_column_privilege(w.oid, c.oid, a.attnum, 'SELECT')) FROM pg_attribute AS a
                WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND (p.watched_columns IS NULL OR a.attname = ANY (p.key_columns || p.watched_columns)))
           AND (NOT c.relrowsecurity OR w.rolsuper OR w.rolbypassrls OR NOT c.relforcerowsecurity AND pg_has_role(w.oid, c.relowner, 'USAGE'))
    FROM   embedsidecar.pipeline AS p
           JOIN pg_class AS c ON c.oid = p.table_oid
           JOIN pg_roles AS w ON w.rolname = CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role')::name END
    WHERE  p.pipeline_id = id), false)
$$;
COMMENT ON FUNCTION embedsidecar.may_see_text(integer) IS 'Whether who asks may read all that the texts of a pipeline are made of.';

-- row_facts: what queue, ledger and history know of a row; embedsidecar explain and the function explain tell their stories from it.
-- Tasks before it are counted up to 100,000, and history is told of the last five looks.
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
    SELECT jsonb_build_object('text_hash', CASE WHEN l.text_hash IS NULL THEN '' WHEN s.shown THEN encode(l.text_hash, 'hex') ELSE 'hidden' END,
           'source_hash', CASE WHEN s.shown THEN encode(l.source_hash, 'hex') ELSE 'hidden' END, 'generation', l.generation, 'lsn', l.lsn,
           'written_at', l.written_at, 'written_seconds_ago', extract(epoch FROM now() - l.written_at), 'anew', length(l.vector_hash) = 0,
           'vector', l.text_hash IS NOT NULL AND l.vector_hash <> '\x0000000000000000')
    FROM   embedsidecar.ledger AS l CROSS JOIN embedsidecar.may_see_text(id) AS s (shown) WHERE l.pipeline_id = id AND l.row_key = key),
'history', coalesce((
    SELECT jsonb_agg(jsonb_build_object('finished_at', o.finished_at, 'finished_seconds_ago', extract(epoch FROM now() - o.finished_at), 'outcome', o.outcome,
           'attempt', o.attempt, 'code', coalesce(o.error_code, ''), 'lsn', o.lsn, 'committed_at', o.committed_at, 'sidecar', coalesce(o.instance, ''),
           'started_at', o.finished_at - make_interval(secs => o.took_ms / 1000.0), 'took_ms', o.took_ms, 'generation', coalesce(o.generation, 0),
           'dims', CASE WHEN o.outcome = 'embedded' THEN o.dims ELSE 0 END, 'version', coalesce(o.version, '')) ORDER BY o.finished_at DESC)
    FROM  (SELECT h.*, w.instance, w.version, p.dims
           FROM   embedsidecar.history AS h LEFT JOIN embedsidecar.worker AS w ON w.worker_id = h.worker_id LEFT JOIN embedsidecar.pipeline AS p ON p.pipeline_id = h.pipeline_id
           WHERE h.pipeline_id = id AND h.row_key = key ORDER BY h.finished_at DESC LIMIT 5) AS o), '[]'))
$$;
COMMENT ON FUNCTION embedsidecar.row_facts(integer, text) IS 'What queue, ledger and history know of a row, as JSON: what explain tells of. Never a text.';

-- The row itself is not looked at: text and filter are expressions of its table's owner, which nobody runs with the rights of another.
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
        WHEN resting LIKE 'it is outside of its hours%' THEN format('SELECT embedsidecar.resume(%L, ''1 hour'');', p.name)
        WHEN resting = 'it is paused' THEN CASE WHEN p.enabled THEN 'SELECT embedsidecar.resume();' ELSE format('SELECT embedsidecar.resume(%L);', p.name) END
        WHEN resting IS NOT NULL THEN 'SELECT * FROM embedsidecar.health WHERE status <> ''ok'';'
        WHEN verdict IN ('working', 'waiting') THEN 'wait'
        WHEN verdict IN ('unknown', 'not_queued') AND NOT scanning THEN format('look at the row itself: embedsidecar explain; if it is there and stays unknown: SELECT embedsidecar.backfill(%L);', p.name)
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

CREATE OR REPLACE FUNCTION embedsidecar.row_key(VARIADIC parts text[]) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
SELECT CASE WHEN cardinality(parts) = 1 THEN parts[1]
       ELSE (SELECT string_agg(replace(replace(u.part, '\', '\\'), '|', '\|'), '|' ORDER BY u.n) FROM unnest(parts) WITH ORDINALITY AS u (part, n)) END
$$;
COMMENT ON FUNCTION embedsidecar.row_key(text[]) IS 'The row_key of a key of several columns: embedsidecar.row_key(a::text, b). That of a single column is its text.';

-- A view of rows with their vectors is for whoever asks to have: it depends on the columns of a table, whose owner may not drop one or give it
-- another type while the view is there. So nothing makes it by itself.
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
