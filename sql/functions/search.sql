-- Search by meaning, and the vector of a text, by SQL. Docs: docs/search.md, section "By SQL". A question reaches the
-- sidecar as a signed non-transactional logical message through its slot; the answer comes back as a row.

-- Construction of questions: internal functions, called with the rights of the schema's owner.
-- HMAC-SHA-256 with a key that is derived from the installation's secret.
CREATE OR REPLACE FUNCTION embedsidecar.sign(purpose text, content bytea) RETURNS bytea
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    inner_key bytea;
    outer_key bytea;
BEGIN
    SELECT sha256(convert_to(purpose, 'UTF8') || i.secret) || decode(repeat('00', 32), 'hex') INTO STRICT inner_key
        FROM embedsidecar.installation AS i;
    outer_key := inner_key;
    FOR i IN 0..63 LOOP
        inner_key := set_byte(inner_key, i, get_byte(inner_key, i) # 54);
        outer_key := set_byte(outer_key, i, get_byte(outer_key, i) # 92);
    END LOOP;
    RETURN sha256(outer_key || sha256(inner_key || content));
END $$;
COMMENT ON FUNCTION embedsidecar.sign IS
    'Signs a question or a hint, so that sidecars ignore messages that others put into the WAL.';

CREATE OR REPLACE FUNCTION embedsidecar.question(caller text, pipeline text, content text, timeout interval,
    OUT pipeline_id integer, OUT slot_name name, OUT body bytea, OUT question bytea)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    found record;
    most  constant integer := 32768;
BEGIN
    IF question.content IS NULL THEN
        RAISE EXCEPTION '%: expected a text, not NULL', question.caller USING ERRCODE = 'null_value_not_allowed';
    END IF;
    IF octet_length(question.content) > most THEN
        RAISE EXCEPTION '%: a text of % bytes is too long: the maximum is %', question.caller,
            octet_length(question.content), most
            USING ERRCODE = 'program_limit_exceeded',
                HINT = 'pass a part of the text: a model reads only up to its token limit';
    END IF;
    IF question.timeout IS NULL OR question.timeout <= '0' OR question.timeout > '1 minute' THEN
        RAISE EXCEPTION '%: timeout: expected more than 0 and at most 1 minute, not %', question.caller,
            coalesce(question.timeout::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Without a name any pipeline will do, if all of them have the same model.
    IF question.pipeline IS NULL
       AND (SELECT count(DISTINCT p.fingerprint) = 1 FROM embedsidecar.pipeline AS p WHERE p.beside IS NULL) THEN
        question.pipeline_id := (SELECT min(p.pipeline_id) FROM embedsidecar.pipeline AS p WHERE p.beside IS NULL);
    ELSE
        question.pipeline_id := embedsidecar.pipeline_meant(question.pipeline);
    END IF;
    -- The message may quote a text or a filter, so only roles that may read the table see it.
    SELECT p.name, p.slot_name, p.status,
           CASE WHEN embedsidecar.reads(p.table_oid) THEN p.status_detail END AS status_detail
    INTO   found FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = question.pipeline_id;
    IF found.status <> 'active' THEN
        RAISE EXCEPTION '%: pipeline "%" cannot be searched now: %', question.caller, found.name,
            concat_ws(': ', found.status, nullif(found.status_detail, ''))
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'embedsidecar check shows what to do';
    END IF;
    question.slot_name := found.slot_name;
    -- The question contains the role that logged in: roles learn nothing of other roles' questions.
    question.body := int4send(question.pipeline_id) || oidsend(quote_ident(session_user)::regrole)
        || convert_to(question.content, 'UTF8');
    question.question := sha256(question.body);
END $$;
COMMENT ON FUNCTION embedsidecar.question IS
    'Checks the arguments of embed, search and ask, and encodes them for the sidecar.';

CREATE OR REPLACE FUNCTION embedsidecar.texts_question(caller text, pipeline text, content text, texts text[],
    timeout interval, OUT slot_name name, OUT body bytea, OUT question bytea)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    q     record;
    bytes bigint;
    most  constant integer := 4000000;
    many  constant integer := 1000;
BEGIN
    SELECT * INTO q FROM embedsidecar.question(texts_question.caller, texts_question.pipeline, texts_question.content,
        texts_question.timeout);
    slot_name := q.slot_name;
    IF texts_question.texts IS NULL THEN
        body := q.body;
        question := q.question;
        RETURN;
    END IF;
    IF texts_question.content = '' OR array_position(texts_question.texts, NULL) IS NOT NULL
       OR array_ndims(texts_question.texts) > 1 THEN
        RAISE EXCEPTION '%: expected a text that is not empty, and a list of texts without NULL', texts_question.caller
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF cardinality(texts_question.texts) NOT BETWEEN 1 AND many THEN
        RAISE EXCEPTION '%: expected 1 to % texts, not %', texts_question.caller, many,
            cardinality(texts_question.texts) USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT sum(octet_length(t)) INTO bytes FROM unnest(texts_question.texts) AS t;
    IF bytes > most THEN
        RAISE EXCEPTION '%: % bytes of texts are too many: the maximum is %', texts_question.caller, bytes, most
            USING ERRCODE = 'program_limit_exceeded',
                HINT = 'pass fewer texts, or their beginnings: a model reads only up to its token limit';
    END IF;
    -- Pipeline and role, then each text after its length; the first text is the query.
    SELECT substr(q.body, 1, 8) || string_agg(int4send(octet_length(t.bytes)) || t.bytes, ''::bytea ORDER BY t.n)
    INTO   body
    FROM  (SELECT convert_to(x.content, 'UTF8') AS bytes, x.n
           FROM unnest(texts_question.content || texts_question.texts) WITH ORDINALITY AS x (content, n)) AS t;
    question := sha256(body);
END $$;
COMMENT ON FUNCTION embedsidecar.texts_question IS
    'As question, with texts whose scores are wanted; NULL: the vector of the question is wanted.';

CREATE OR REPLACE FUNCTION embedsidecar.put(body bytea, timeout interval, scores boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- pipeline and role, then the deadline in microseconds, then the text
    content bytea := substr(body, 1, 8) || int8send((extract(epoch FROM clock_timestamp() + timeout) * 1000000)::bigint)
        || substr(body, 9);
BEGIN
    content := CASE WHEN scores THEN '\x02'::bytea ELSE '\x01' END || embedsidecar.sign('embedsidecar.ask', content)
        || content;
    IF current_setting('server_version_num')::integer >= 170000 THEN
        EXECUTE $q$SELECT pg_logical_emit_message(false, 'embedsidecar.ask', $1, true)$q$ USING content;
    ELSE
        PERFORM pg_logical_emit_message(false, 'embedsidecar.ask', content);
    END IF;
END $$;
COMMENT ON FUNCTION embedsidecar.put IS
    'Sends a question, for a vector or for scores. Before PostgreSQL 17 it is sent when any session commits.';

CREATE OR REPLACE FUNCTION embedsidecar.asked_about(body bytea) RETURNS integer
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT ('x' || encode(substr(body, 1, 4), 'hex'))::bit(32)::integer -- written by int4send
$$;
COMMENT ON FUNCTION embedsidecar.asked_about IS 'The number of the pipeline that a question is about.';

CREATE OR REPLACE FUNCTION embedsidecar.answer_to(caller text, body bytea, question bytea, since timestamptz)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    found record;
BEGIN
    SELECT a.vector, a.problem INTO found FROM embedsidecar.answer AS a
    WHERE  a.question = answer_to.question
           AND CASE WHEN a.problem IS NULL THEN a.made_at > clock_timestamp() - interval '1 minute'
               ELSE a.made_at >= answer_to.since END;
    IF found.problem IS NOT NULL THEN
        -- After the colon are a program's words, with its files and addresses: only for roles that may read the table.
        RAISE EXCEPTION '%: %', answer_to.caller, CASE WHEN embedsidecar.reads((SELECT p.table_oid
                FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = embedsidecar.asked_about(answer_to.body)))
            THEN found.problem ELSE split_part(found.problem, ':', 1) END USING ERRCODE = 'external_routine_exception';
    END IF;
    RETURN found.vector;
END $$;
COMMENT ON FUNCTION embedsidecar.answer_to IS
    'The answer to a question: a vector of at most a minute ago, an error that is not older than the question, or '
    'NULL.';

CREATE OR REPLACE FUNCTION embedsidecar.nobody_answers(caller text, slot_name name, timeout interval) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    streamed boolean := EXISTS (SELECT FROM pg_replication_slots AS r WHERE r.slot_name = nobody_answers.slot_name
        AND r.active);
    others   text;
BEGIN
    IF NOT streamed THEN
        -- The reason is only for roles that may see the sidecars.
        others := (SELECT string_agg(concat_ws(' ', w.instance, w.stream,
                       CASE WHEN embedsidecar.reads('embedsidecar.workers'::regclass)
                           THEN nullif(w.stream_detail, '') END), '; ')
                   FROM embedsidecar.worker AS w
                   WHERE w.slot_name = nobody_answers.slot_name AND embedsidecar.runs(w));
    END IF;
    IF NOT streamed AND others IS NULL THEN
        RAISE EXCEPTION '%: no sidecar runs to embed the text', nobody_answers.caller
            USING ERRCODE = 'object_not_in_prerequisite_state',
                HINT = 'start embedsidecar run. A sidecar that has just started loads its models first: its /readyz '
                    'answers 200 when it is ready';
    END IF;
    IF nobody_answers.timeout IS NOT NULL THEN
        RAISE EXCEPTION '%: no answer within %', nobody_answers.caller, nobody_answers.timeout
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  DETAIL = CASE WHEN streamed THEN format('Slot "%s" is streamed.', nobody_answers.slot_name)
                                ELSE format('No sidecar streams slot "%s": %s.', nobody_answers.slot_name, others) END,
                  HINT = 'a query waits until earlier changes are read from the slot (embedsidecar.slots shows how '
                      'many), and until a model has started; timeout can be up to 1 minute';
    END IF;
END $$;
COMMENT ON FUNCTION embedsidecar.nobody_answers IS 'Raises an error if no sidecar runs, or after the timeout.';

CREATE OR REPLACE FUNCTION embedsidecar.not_in_time(caller text, slot_name name, body bytea, timeout interval)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    id  constant text := embedsidecar.asked_about(body)::text;
    why text;
BEGIN
    SELECT CASE WHEN embedsidecar.reads((SELECT p.table_oid FROM embedsidecar.pipeline AS p
               WHERE p.pipeline_id = id::integer)) THEN ': ' || (w.problems -> id ->> 'detail') ELSE '' END
    INTO   why FROM embedsidecar.worker AS w
    WHERE  w.slot_name = not_in_time.slot_name AND w.stream = 'streaming' AND w.problems -> id IS NOT NULL
           AND embedsidecar.runs(w) LIMIT 1;
    IF why IS NOT NULL THEN
        RAISE EXCEPTION '%: no answer within %: the sidecar cannot embed for this pipeline now%', not_in_time.caller,
            not_in_time.timeout, why
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'embedsidecar check shows more; a model that starts takes a while: timeout can be up to '
                      '1 minute';
    END IF;
    PERFORM embedsidecar.nobody_answers(not_in_time.caller, not_in_time.slot_name, not_in_time.timeout);
END $$;
COMMENT ON FUNCTION embedsidecar.not_in_time IS
    'Raises the error of a timeout, with the streaming sidecar''s problem with the pipeline, if it has reported one.';

CREATE OR REPLACE FUNCTION embedsidecar.on_primary(caller text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION '%: this server is a standby, which cannot ask the sidecar', on_primary.caller
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'embed the text on the primary, and pass the vector here: SELECT * FROM '
                      'embedsidecar.neighbours(pipeline, vector, rows)';
    END IF;
END $$;
COMMENT ON FUNCTION embedsidecar.on_primary IS 'Raises an error on a standby.';

CREATE OR REPLACE FUNCTION embedsidecar.answered(caller text, slot_name name, body bytea, question bytea,
    timeout interval, scores boolean) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    began  timestamptz := clock_timestamp();
    asked  timestamptz := '-infinity';
    again  interval := CASE WHEN scores THEN '10 s' ELSE '1 s' END; -- its texts may be large
    pause  double precision := 0.001;
    answer text;
BEGIN
    answer := embedsidecar.answer_to(caller, body, question, 'infinity');
    IF answer IS NOT NULL THEN
        RETURN answer;
    END IF;
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION '%: a % transaction never sees the answer', caller,
            upper(current_setting('transaction_isolation'))
            USING ERRCODE = 'object_not_in_prerequisite_state',
                HINT = 'ask in READ COMMITTED, or CALL embedsidecar.ask(pipeline, content) before the transaction '
                'begins';
    END IF;
    IF current_setting('server_version_num')::integer < 170000 THEN
        RAISE EXCEPTION
            '%: before PostgreSQL 17, CALL embedsidecar.ask(pipeline, content) first, outside of a transaction', caller
            USING ERRCODE = 'feature_not_supported',
                HINT = 'for a minute after that this statement finds the answer. With ATOMIC_REQUESTS of Django, the '
                'view needs transaction.non_atomic_requests. A search that reranks needs rerank and its filter in '
                'ask, too';
    END IF;
    PERFORM embedsidecar.nobody_answers(caller, slot_name, NULL);
    LOOP
        -- Again after a while: a sidecar that is stopping may have read the question without an answer.
        IF clock_timestamp() >= asked + again THEN
            asked := clock_timestamp();
            PERFORM embedsidecar.call();
            PERFORM embedsidecar.put(body, began + timeout - asked, scores);
        END IF;
        PERFORM pg_sleep(least(pause, extract(epoch FROM began + timeout - clock_timestamp())));
        pause := least(1.3 * pause, 0.02);
        answer := embedsidecar.answer_to(caller, body, question, began);
        IF answer IS NOT NULL THEN
            RETURN answer;
        END IF;
        IF clock_timestamp() >= began + timeout THEN
            PERFORM embedsidecar.not_in_time(caller, slot_name, body, timeout);
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION embedsidecar.answered IS
    'The answer to a question: an existing one, or the sidecar''s answer when it is asked.';

-- Functions for users.
CREATE OR REPLACE FUNCTION embedsidecar.embed(content text, pipeline text DEFAULT NULL,
    timeout interval DEFAULT '5 s') RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    q record;
BEGIN
    PERFORM embedsidecar.on_primary('embed');
    SELECT * INTO q FROM embedsidecar.question('embed', embed.pipeline, embed.content, embed.timeout);
    RETURN embedsidecar.answered('embed', q.slot_name, q.body, q.question, embed.timeout, false);
END $$;
COMMENT ON FUNCTION embedsidecar.embed IS
    'The vector of a text to search for, by a pipeline''s model, as pgvector reads it: SELECT id FROM docs ORDER BY '
    'embedding <=> (SELECT embedsidecar.embed(''a text'')::vector) LIMIT 5. Use it in a sub-select, otherwise it is '
    'called for each row. From PostgreSQL 17 on, in READ COMMITTED, on the primary; after CALL embedsidecar.ask it '
    'answers in any transaction.';

CREATE OR REPLACE FUNCTION embedsidecar.rerank(pipeline text, content text, texts text[],
    timeout interval DEFAULT '5 s') RETURNS real[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    q record;
BEGIN
    PERFORM embedsidecar.on_primary('rerank');
    IF rerank.texts IS NULL THEN
        RAISE EXCEPTION 'rerank: expected texts, not NULL' USING ERRCODE = 'null_value_not_allowed';
    END IF;
    SELECT * INTO q FROM embedsidecar.texts_question('rerank', rerank.pipeline, rerank.content, rerank.texts,
        rerank.timeout);
    RETURN embedsidecar.answered('rerank', q.slot_name, q.body, q.question, rerank.timeout, true)::real[];
END $$;
COMMENT ON FUNCTION embedsidecar.rerank IS
    'A score for each of the texts, in order: how well it answers content, by the reranker of a pipeline. Larger is '
    'better; only scores of one call can be compared. Like embed, it asks the sidecar.';

CREATE OR REPLACE FUNCTION embedsidecar.begin_ask(pipeline text, content text, timeout interval,
    texts text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    q record;
BEGIN
    PERFORM embedsidecar.on_primary('ask');
    SELECT * INTO q FROM embedsidecar.texts_question('ask', begin_ask.pipeline, begin_ask.content, begin_ask.texts,
        begin_ask.timeout);
    PERFORM embedsidecar.nobody_answers('ask', q.slot_name, NULL);
    PERFORM embedsidecar.put(q.body, begin_ask.timeout, begin_ask.texts IS NOT NULL);
    -- With a transaction id the commit is flushed, and the message with it, without waiting for a standby.
    PERFORM pg_current_xact_id(), set_config('synchronous_commit', 'local', true);
END $$;
COMMENT ON FUNCTION embedsidecar.begin_ask IS 'For ask: sends the question with the commit of this transaction.';

CREATE OR REPLACE FUNCTION embedsidecar.asked(pipeline text, content text, since timestamptz, late interval,
    texts text[]) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    q    record;
    done boolean;
BEGIN
    SELECT * INTO q FROM embedsidecar.texts_question('ask', asked.pipeline, asked.content, asked.texts, '1 s');
    done := embedsidecar.answer_to('ask', q.body, q.question, asked.since) IS NOT NULL;
    IF NOT done AND late IS NOT NULL THEN
        PERFORM embedsidecar.not_in_time('ask', q.slot_name, q.body, late);
    END IF;
    IF NOT done THEN
        PERFORM embedsidecar.call();
    END IF;
    RETURN done;
END $$;
COMMENT ON FUNCTION embedsidecar.asked IS
    'For ask: whether the answer exists; raises an error if it does not by the end of the wait.';

-- A procedure with its owner's rights, or with a search_path of its own, may not commit. So this one has the invoker's
-- rights, and sets search_path after each commit: operators and functions never come from the caller's search_path.
CREATE OR REPLACE PROCEDURE embedsidecar.ask(pipeline text, content text, timeout interval DEFAULT '5 s',
    rerank integer DEFAULT NULL, filter jsonb DEFAULT NULL, max_distance double precision DEFAULT NULL,
    fresh_only boolean DEFAULT false)
LANGUAGE plpgsql AS $$
DECLARE
    path  pg_catalog.text := pg_catalog.current_setting('search_path');
    began pg_catalog.timestamptz;
    asked pg_catalog.timestamptz;
    again interval := '1 s';
    pause double precision;
    texts pg_catalog.text[];
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    PERFORM embedsidecar.check_rerank('ask', rerank, 1);
    -- First the vector; then the scores of the rows that it finds.
    FOR step IN 1..CASE WHEN rerank IS NULL THEN 1 ELSE 2 END LOOP
        IF step = 2 THEN
            texts := (embedsidecar.candidates(pipeline, content, rerank, timeout, filter, max_distance,
                fresh_only)).texts;
            EXIT WHEN cardinality(texts) = 0;
            again := '10 s'; -- the texts may be large
        END IF;
        began := clock_timestamp();
        asked := '-infinity';
        pause := 0.001;
        LOOP
            IF clock_timestamp() >= asked + again THEN
                asked := clock_timestamp();
                PERFORM embedsidecar.begin_ask(pipeline, content, timeout, texts);
            END IF;
            COMMIT;
            PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
            EXIT WHEN embedsidecar.asked(pipeline, content, began, CASE
                WHEN clock_timestamp() >= began + timeout THEN timeout END, texts);
            PERFORM pg_sleep(pause);
            pause := least(1.3 * pause, 0.02);
        END LOOP;
    END LOOP;
    PERFORM pg_catalog.set_config('search_path', path, true);
END $$;
COMMENT ON PROCEDURE embedsidecar.ask IS
    'Embeds a text, on every version of PostgreSQL: for a minute embed and search answer the same role at once, in '
    'any transaction. With rerank, and the filter, max_distance and fresh_only of the search, its candidates are '
    'scored, too. It commits, so call it outside of a transaction.';

CREATE OR REPLACE FUNCTION embedsidecar.base_of(type oid) RETURNS oid
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE base AS (
        SELECT base_of.type AS oid UNION ALL SELECT y.typbasetype FROM base
            JOIN pg_type AS y ON y.oid = base.oid WHERE y.typtype = 'd')
    SELECT b.oid FROM base AS b JOIN pg_type AS y ON y.oid = b.oid WHERE y.typtype <> 'd'
$$;
COMMENT ON FUNCTION embedsidecar.base_of IS 'The base type of a domain; any other type itself.';

-- The conditions of a filter, over a source row s. No input becomes part of the statement: columns come from the
-- catalog, and values from $4. Values of a type that is not built in are compared as text: its casts and operators may
-- be code of its owner.
CREATE OR REPLACE FUNCTION embedsidecar.search_conditions(table_oid oid, filter jsonb, OUT conditions text,
    OUT given jsonb, OUT columns text[])
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    item   record;
    part   record;
    found  record;
    list   jsonb;
    plain  jsonb;
    nulls  boolean;
    value  text;
    places constant text[] := ARRAY['$lt', '$lte', '$eq', '$gte', '$gt'];
BEGIN
    conditions := '';
    given := '[]';
    columns := '{}';
    IF search_conditions.filter IS NULL THEN
        RETURN;
    END IF;
    IF jsonb_typeof(search_conditions.filter) <> 'object' THEN
        RAISE EXCEPTION 'filter: expected an object of columns and values' USING ERRCODE = 'invalid_parameter_value',
            HINT = '{"status": "published", "price": {"$gte": 10, "$lt": 20}}';
    END IF;
    IF (SELECT count(*) FROM jsonb_object_keys(search_conditions.filter)) > 16 THEN
        RAISE EXCEPTION 'filter: it may name at most 16 columns' USING ERRCODE = 'program_limit_exceeded';
    END IF;
    FOR item IN SELECT e.key, e.value FROM jsonb_each(search_conditions.filter) AS e ORDER BY e.key LOOP
        -- As in queries/filterable_columns.sql.
        SELECT format('s.%I', a.attname) AS name, t.base, format('pg_catalog.%I', b.typname) AS type, x.operators
        INTO   found
        FROM   pg_attribute AS a
               CROSS JOIN LATERAL embedsidecar.base_of(a.atttypid) AS t (base)
               JOIN pg_type AS b ON b.oid = t.base
               LEFT JOIN LATERAL (
                   SELECT array_agg(format('OPERATOR(pg_catalog.%s)', e.oprname) ORDER BY ea.amopstrategy) AS operators
                   FROM   pg_amop AS ea JOIN pg_operator AS e ON e.oid = ea.amopopr,
                          (SELECT o.opcfamily, o.opcintype FROM pg_opclass AS o
                           WHERE  o.opcdefault
                                  AND o.opcmethod = (SELECT m.oid FROM pg_am AS m WHERE m.amname = 'btree')
                                  AND t.base < 16384 AND (o.opcintype = t.base
                                      OR EXISTS (SELECT FROM pg_cast AS c WHERE c.castsource = t.base
                                          AND c.casttarget = o.opcintype AND c.castmethod = 'b'
                                          AND c.castcontext = 'i'))
                           ORDER BY o.opcintype = t.base DESC, o.opcintype LIMIT 1) AS o
                   WHERE  ea.amopfamily = o.opcfamily AND ea.amoplefttype = o.opcintype
                          AND ea.amoprighttype = o.opcintype AND ea.amopstrategy BETWEEN 1 AND 5) AS x ON true
        WHERE  a.attrelid = search_conditions.table_oid AND a.attname = item.key AND a.attnum > 0
               AND NOT a.attisdropped;
        IF found.name IS NULL THEN
            RAISE EXCEPTION 'filter: table % has no column "%"', search_conditions.table_oid::regclass,
                left(item.key, 200) USING ERRCODE = 'undefined_column',
                    HINT = (SELECT 'there are: ' || string_agg(a.attname, ', ' ORDER BY a.attnum)
                            FROM   pg_attribute AS a WHERE a.attrelid = search_conditions.table_oid AND a.attnum > 0
                                   AND NOT a.attisdropped);
        END IF;
        IF found.base >= 16384 THEN
            found.type := 'pg_catalog.text';
            found.operators := ARRAY[NULL, NULL, 'OPERATOR(pg_catalog.=)', NULL, NULL];
            value := format('pg_catalog.format(%L, %s)', '%s', found.name);
        ELSE
            value := found.name;
        END IF;
        columns := columns || item.key;
        FOR part IN SELECT e.key AS operator, e.value FROM jsonb_each(CASE jsonb_typeof(item.value)
            WHEN 'object' THEN item.value WHEN 'array' THEN jsonb_build_object('$in', item.value)
            ELSE jsonb_build_object('$eq', item.value) END) AS e LOOP
            IF part.operator <> ALL (places || ARRAY['$ne', '$in', '$nin']) THEN
                RAISE EXCEPTION 'filter: there is no operator "%"', left(part.operator, 200)
                    USING ERRCODE = 'invalid_parameter_value',
                        HINT = 'there are: $eq, $ne, $in, $nin, $gt, $gte, $lt, $lte';
            END IF;
            IF (jsonb_typeof(part.value) = 'array') <> (part.operator IN ('$in', '$nin')) THEN
                RAISE EXCEPTION 'filter: column "%": $in and $nin take a list, other operators one value', item.key
                    USING ERRCODE = 'invalid_parameter_value';
            END IF;
            list := CASE jsonb_typeof(part.value) WHEN 'array' THEN part.value ELSE jsonb_build_array(part.value) END;
            IF EXISTS (SELECT FROM jsonb_array_elements(list) AS e WHERE jsonb_typeof(e) IN ('array', 'object')) THEN
                RAISE EXCEPTION 'filter: column "%": values are strings, numbers, true, false and null', item.key
                    USING ERRCODE = 'invalid_parameter_value';
            END IF;
            SELECT coalesce(jsonb_agg(e) FILTER (WHERE jsonb_typeof(e) <> 'null'), '[]'),
                coalesce(bool_or(jsonb_typeof(e) = 'null'), false) INTO plain, nulls
            FROM jsonb_array_elements(list) AS e;
            IF jsonb_array_length(list) NOT BETWEEN 1 AND 1000 THEN
                RAISE EXCEPTION 'filter: column "%": expected 1 to 1000 values, not %', item.key,
                    jsonb_array_length(list) USING ERRCODE = 'invalid_parameter_value';
            END IF;
            IF nulls AND (part.operator IN ('$lt', '$lte', '$gte', '$gt') OR part.operator IN ('$eq', '$in')
                AND plain <> '[]') THEN
                RAISE EXCEPTION 'filter: column "%": % takes no null%', item.key, part.operator,
                    CASE WHEN plain = '[]' THEN '' ELSE ' beside other values' END
                    USING ERRCODE = 'invalid_parameter_value';
            END IF;
            IF nulls THEN
                conditions := conditions || ' AND ' || found.name
                    || CASE WHEN part.operator IN ('$eq', '$in') THEN ' IS NULL' ELSE ' IS NOT NULL' END;
            END IF;
            CONTINUE WHEN plain = '[]';
            list := to_jsonb(found.operators) -> (coalesce(array_position(places, part.operator), 3) - 1);
            IF coalesce(jsonb_typeof(list), 'null') = 'null' THEN
                RAISE EXCEPTION 'filter: column "%" is of type %, whose values cannot be compared by %', item.key,
                    format_type(found.base, -1), part.operator USING ERRCODE = 'invalid_parameter_value';
            END IF;
            BEGIN
                EXECUTE 'SELECT CAST(ARRAY(SELECT jsonb_array_elements_text($1)) AS ' || found.type || '[])'
                    USING plain;
            EXCEPTION WHEN data_exception THEN
                RAISE EXCEPTION 'filter: a value for column "%" does not fit its type, %', item.key,
                    format_type(found.base, -1) USING ERRCODE = 'invalid_parameter_value';
            END;
            conditions := conditions || ' AND ' || value || ' ' || (list #>> '{}') || format(
                ' ANY (CAST(ARRAY(SELECT pg_catalog.jsonb_array_elements_text($4 -> %s)) AS %s[]))',
                jsonb_array_length(given), found.type)
                || CASE WHEN part.operator IN ('$ne', '$nin') THEN ' IS FALSE' ELSE '' END;
            given := given || jsonb_build_array(plain);
        END LOOP;
    END LOOP;
END $$;
COMMENT ON FUNCTION embedsidecar.search_conditions IS
    'For search_statement: the conditions of a filter, their values, and their columns.';

-- Only roles that may read some column of a table may see an expression over it.
CREATE OR REPLACE FUNCTION embedsidecar.reads(relation oid) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM pg_roles AS r WHERE embedsidecar.acts_as(quote_ident(session_user)::regrole, r.oid)
                   AND has_any_column_privilege(r.oid, relation, 'SELECT'))
$$;
COMMENT ON FUNCTION embedsidecar.reads IS
    'Whether the role of the session, or one that it may act as, may read any column of a table.';

-- Names come from the catalog by the number of the source table, which the role that works cannot set: the statement
-- runs with the rights of the searching role, and must not read another table.
CREATE OR REPLACE FUNCTION embedsidecar.search_statement(pipeline text, filter jsonb, OUT near text, OUT exact text,
    OUT iterative boolean, OUT pipeline_id integer, OUT given jsonb, OUT tables oid[], OUT columns text[],
    OUT relation oid, OUT attnum smallint, OUT called text, OUT name text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    p        record;
    source   text;
    into_    text;
    vectors  oid;
    at       name;
    stored   record;
    keys     text;  -- s."id" AS embedsidecar_key_1
    own      text;  -- embedsidecar_key_1
    same     text;  -- v."id" = s."id"
    here     text;  -- t."id" = b.embedsidecar_key_1
    row_key  text;
    pairs    text;
    named    name[];
    distance text;
    chunks   boolean;
    asked    record;
BEGIN
    SELECT * INTO STRICT p FROM embedsidecar.pipeline AS q
        WHERE q.pipeline_id = embedsidecar.pipeline_meant(search_statement.pipeline);
    SELECT CASE WHEN c.relkind = 'p' THEN '' ELSE 'ONLY ' END || format('%I.%I', n.nspname, c.relname) INTO source
    FROM   pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = p.table_oid
        AND c.relkind IN ('r', 'p');
    IF p.destination_column IS NULL THEN
        SELECT c.oid, format('%I.%I', n.nspname, c.relname) INTO vectors, into_
        FROM   pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE  n.nspname = coalesce(p.destination_schema, p.table_schema) AND c.relname = p.destination_table
            AND c.relkind IN ('r', 'p')
            AND (c.oid = p.destination_oid OR embedsidecar.may_work(c.relowner)); -- no other role's table counts
        IF vectors IS NULL THEN -- it was renamed
            SELECT d.relation, d.quoted INTO vectors, into_ FROM embedsidecar.destination_of(p.pipeline_id) AS d;
        END IF;
    ELSE
        vectors := p.table_oid;
    END IF;
    at := coalesce(p.destination_column, 'embedding');
    -- The type of the vectors and the schema of its operators. bit is built in, but its operators are pgvector's.
    SELECT t.typname, format('%I', n.nspname) AS extension,
        string_to_array(regexp_replace(e.extversion, '[^0-9.].*', ''), '.')::int[] >= '{0,8}' AS iterative INTO stored
    FROM   pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid, pg_extension AS e
        JOIN pg_namespace AS n ON n.oid = e.extnamespace
    WHERE  a.attrelid = vectors AND a.attname = at AND NOT a.attisdropped AND e.extname = 'vector'
           AND (t.typnamespace = e.extnamespace AND t.typname IN ('vector', 'halfvec', 'sparsevec')
               OR t.oid = 'bit'::regtype);
    -- Key values are compared as in the index of the key.
    SELECT array_agg(a.attname ORDER BY x.n),
           string_agg(format('s.%I AS embedsidecar_key_%s', a.attname, x.n), ', ' ORDER BY x.n),
           string_agg(format('embedsidecar_key_%s', x.n), ', ' ORDER BY x.n),
           string_agg(format('v.%1$I %2$s s.%1$I', a.attname, x.equal), ' AND ' ORDER BY x.n),
           string_agg(format('t.%I %s b.embedsidecar_key_%s', a.attname, x.equal, x.n), ' AND ' ORDER BY x.n),
           CASE WHEN count(*) = 1 THEN 'embedsidecar.printed(b.embedsidecar_key_1)'
                ELSE string_agg(format($q$replace(replace(embedsidecar.printed(b.embedsidecar_key_%s), '\', '\\'),
                    '|', '\|')$q$, x.n), $q$ || '|' || $q$ ORDER BY x.n) END,
           -- jsonb_build_object looks for a cast to JSON: for a type that is not built in, that is its owner's code.
           string_agg(format(CASE WHEN t.base >= 16384 THEN $q$%L, format('%%s', b.embedsidecar_key_%s)$q$
               ELSE '%L, b.embedsidecar_key_%s' END, a.attname, x.n), ', ' ORDER BY x.n)
    INTO   named, keys, own, same, here, row_key, pairs
    FROM  (SELECT i.indrelid, i.indkey[g] AS attnum, g + 1 AS n,
        format('OPERATOR(%I.%s)', en.nspname, eo.oprname) AS equal
           FROM   pg_index AS i JOIN pg_class AS c ON c.oid = i.indrelid
                  CROSS JOIN LATERAL generate_series(0, i.indnkeyatts - 1) AS g
                  JOIN pg_opclass AS used ON used.oid = i.indclass[g]
                  JOIN pg_opclass AS o ON o.opcintype = used.opcintype AND o.opcdefault
                      AND o.opcmethod = (SELECT m.oid FROM pg_am AS m WHERE m.amname = 'btree')
                  JOIN pg_amop AS ea ON ea.amopfamily = o.opcfamily AND ea.amoplefttype = o.opcintype
                      AND ea.amoprighttype = o.opcintype AND ea.amopstrategy = 3
                  JOIN pg_operator AS eo ON eo.oid = ea.amopopr JOIN pg_namespace AS en ON en.oid = eo.oprnamespace
           WHERE  i.indrelid = p.table_oid AND i.indisunique AND i.indisvalid
                  AND CASE WHEN c.relreplident = 'i' THEN i.indisreplident ELSE i.indisprimary END) AS x
           JOIN pg_attribute AS a ON a.attrelid = x.indrelid AND a.attnum = x.attnum
           CROSS JOIN LATERAL embedsidecar.base_of(a.atttypid) AS t (base);
    IF p.status <> 'active' OR source IS NULL OR stored.typname IS NULL OR named IS DISTINCT FROM p.key_columns THEN
        RAISE EXCEPTION 'pipeline "%" cannot be searched now: %', p.name,
            CASE WHEN p.status <> 'active' THEN concat_ws(': ', p.status, CASE WHEN embedsidecar.reads(p.table_oid)
                    THEN nullif(p.status_detail, '') END)
                WHEN source IS NULL THEN 'its table was dropped'
                 WHEN stored.typname IS NULL THEN 'its destination has changed'
                     ELSE 'the key of its table has changed' END
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'embedsidecar check shows what to do';
    END IF;
    chunks := into_ IS NOT NULL AND EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = vectors
        AND a.attname = 'chunk_text' AND NOT a.attisdropped);
    SELECT * INTO asked FROM embedsidecar.search_conditions(p.table_oid, search_statement.filter);
    pipeline_id := p.pipeline_id;
    name := p.name;
    given := asked.given;
    -- The columns that the searching role must be able to read.
    columns := named::text[] || asked.columns
        || CASE WHEN into_ IS NULL THEN ARRAY[at::text]
            ELSE named::text[] || at::text || CASE WHEN chunks THEN '{chunk_no,chunk_text}'::text[] ELSE '{}' END END;
    tables := array_fill(p.table_oid, ARRAY[cardinality(named) + cardinality(asked.columns)]);
    tables := tables || array_fill(vectors, ARRAY[cardinality(columns) - cardinality(tables)]);
    distance := CASE WHEN into_ IS NULL THEN 's.' ELSE 'v.' END || format('%I', at)
        || format(' OPERATOR(%s.%s) ', stored.extension, CASE stored.typname WHEN 'bit' THEN '<~>'
            WHEN 'sparsevec' THEN '<#>' ELSE '<=>' END)
        || format(CASE stored.typname WHEN 'halfvec' THEN 'CAST($1::text::%1$s.vector AS %1$s.halfvec)'
            WHEN 'bit' THEN '%1$s.binary_quantize($1::text::%1$s.vector)'
                                      WHEN 'sparsevec' THEN '$1::text::%1$s.sparsevec'
                                          ELSE '$1::text::%1$s.vector' END, stored.extension);
    -- A vector in an embedding table whose row is gone is not found, nor one of zeros (its distance is NaN). Among rows
    -- that are as near as the last, the key decides, so that pages fit together.
    near := 'WITH embedsidecar_nearest AS MATERIALIZED (SELECT ' || keys || ', ' || distance
        || ' AS embedsidecar_distance, '
        || CASE WHEN chunks THEN 'v.chunk_no' ELSE 'NULL::integer' END || ' AS embedsidecar_chunk'
        || ' FROM ' || CASE WHEN into_ IS NULL THEN source || ' AS s'
            ELSE into_ || ' AS v JOIN ' || source || ' AS s ON ' || same END
        || ' WHERE ' || CASE WHEN into_ IS NULL THEN 's.' ELSE 'v.' END || format('%I', at) || ' IS NOT NULL'
        || asked.conditions || ' ORDER BY ';
    exact := near || '(' || distance || ') + 0::float8';
    near := near || distance;
    own := ' FETCH FIRST ($2) ROWS WITH TIES), embedsidecar_best AS (SELECT ' || own
        || ', min(embedsidecar_distance) AS embedsidecar_distance,'
        || ' (array_agg(embedsidecar_chunk ORDER BY embedsidecar_distance, embedsidecar_chunk))[1] AS '
            'embedsidecar_chunk'
        || ' FROM embedsidecar_nearest WHERE embedsidecar_distance <> ''NaN'' GROUP BY ' || own
            || ' ORDER BY min(embedsidecar_distance), ' || own
            || ' LIMIT $3)'
        || ' SELECT coalesce(array_agg(ROW(' || row_key || ', jsonb_build_object(' || pairs
            || '), b.embedsidecar_distance, b.embedsidecar_chunk, '
        || CASE WHEN chunks THEN 't.chunk_text'
            ELSE 'NULL' END || ')::embedsidecar.found_row ORDER BY b.embedsidecar_distance, ' || own || '), ''{}''),'
        || ' (SELECT count(*) FROM embedsidecar_nearest) FROM embedsidecar_best AS b'
        || CASE WHEN chunks THEN ' LEFT JOIN ' || into_ || ' AS t ON ' || here
            || ' AND t.chunk_no = b.embedsidecar_chunk' ELSE '' END;
    near := near || own;
    -- An index stops early if few of the nearest rows are visible to the role or still exist; then all are read.
    exact := CASE WHEN EXISTS (SELECT FROM pg_index AS i JOIN pg_class AS x ON x.oid = i.indexrelid
        JOIN pg_am AS m ON m.oid = x.relam
                               WHERE i.indisvalid AND m.amname IN ('hnsw', 'ivfflat', 'diskann', 'vchordrq')
                                     AND (i.indrelid = vectors
                                         OR i.indrelid IN (SELECT t.relid FROM pg_partition_tree(vectors) AS t)))
             THEN exact || own END;
    iterative := stored.iterative;
    SELECT vectors, a.attnum, format('%I.%I.%I', n.nspname, c.relname, a.attname) INTO relation, attnum, called
    FROM   pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace JOIN pg_attribute AS a ON a.attrelid = c.oid
    WHERE  c.oid = vectors AND a.attname = at AND NOT a.attisdropped;
    IF NOT embedsidecar.reads(p.table_oid) THEN
        near := NULL;
        exact := NULL;
    END IF;
END $$;
COMMENT ON FUNCTION embedsidecar.search_statement IS
    'For neighbours: the statement that finds the nearest rows of a pipeline. $1 is the vector, $2 how many vectors '
    'to examine, $3 how many rows to return, $4 the values of the filter (given). exact is a statement that uses no '
    'index, NULL if none could. tables and columns are what it reads; relation and attnum identify the column of the '
    'vectors.';

CREATE OR REPLACE FUNCTION embedsidecar.printed(value anyelement) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, MDY' SET timezone = 'UTC'
SET intervalstyle = 'postgres' SET extra_float_digits = '3' SET bytea_output = 'hex' AS $$
SELECT format('%s', value)
$$;
COMMENT ON FUNCTION embedsidecar.printed IS
    'For neighbours: a value of a key as embedsidecar.tasks shows it, regardless of the session''s settings.';

-- It cannot check which rows the caller sees: a caller who does not see all rows could guess keys.
CREATE OR REPLACE FUNCTION embedsidecar.rows_with_tasks(pipeline_id integer, keys text[]) RETURNS text[]
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    who name := CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END;
BEGIN
    IF NOT EXISTS (SELECT FROM embedsidecar.pipeline AS p JOIN pg_class AS c ON c.oid = p.table_oid
            JOIN pg_roles AS w ON w.rolname = who
        WHERE  p.pipeline_id = rows_with_tasks.pipeline_id AND (has_table_privilege(who, 'embedsidecar.tasks', 'SELECT')
            OR cardinality(p.key_columns) = (SELECT count(*) FROM pg_attribute AS a WHERE a.attrelid = c.oid
                    AND a.attname = ANY (p.key_columns) AND has_column_privilege(w.oid, c.oid, a.attnum, 'SELECT'))
                AND (NOT c.relrowsecurity OR w.rolsuper OR w.rolbypassrls
                    OR NOT c.relforcerowsecurity AND pg_has_role(w.oid, c.relowner, 'USAGE')))) THEN
        RAISE EXCEPTION 'fresh_only: role "%" may not read the keys of all rows of the table, nor which have tasks',
            who USING ERRCODE = 'insufficient_privilege', HINT = 'GRANT embedsidecar_reader TO ' || quote_ident(who)
                || ' lets it see the keys of all rows with a task; or search without fresh_only';
    END IF;
    RETURN ARRAY(SELECT t.row_key FROM embedsidecar.task AS t
                 WHERE t.pipeline_id = rows_with_tasks.pipeline_id AND t.row_key = ANY (rows_with_tasks.keys));
END $$;
COMMENT ON FUNCTION embedsidecar.rows_with_tasks IS
    'For neighbours: which of some rows have a task, so that their vectors may be of older texts; for roles that see '
    'every row of the table, or every task.';

CREATE OR REPLACE FUNCTION embedsidecar.missing_grants(tables oid[], columns text[]) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(g.statement, '; ' ORDER BY g.statement DESC) FROM (
        SELECT format('GRANT USAGE ON SCHEMA %I TO %I', n.nspname, current_user) AS statement
        FROM   pg_namespace AS n
        WHERE  n.oid IN (SELECT c.relnamespace FROM pg_class AS c WHERE c.oid = ANY (missing_grants.tables))
               AND NOT has_schema_privilege(n.oid, 'USAGE')
        UNION ALL
        SELECT format('GRANT SELECT (%s) ON %I.%I TO %I', string_agg(DISTINCT quote_ident(x.name), ', '), n.nspname,
                      c.relname, current_user)
        FROM   unnest(missing_grants.tables, missing_grants.columns) AS x (oid, name)
               JOIN pg_class AS c ON c.oid = x.oid JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE  NOT has_column_privilege(x.oid, x.name, 'SELECT')
        GROUP BY n.nspname, c.relname) AS g
$$;
COMMENT ON FUNCTION embedsidecar.missing_grants IS
    'For neighbours: the statements that let the current role read these columns; NULL: it may.';

-- As in queries/table_owners.sql.
CREATE OR REPLACE FUNCTION embedsidecar.search_owner(pipeline text) RETURNS name
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE meant AS (SELECT * FROM embedsidecar.pipeline AS p
        WHERE p.pipeline_id = embedsidecar.pipeline_meant(search_owner.pipeline)),
    root AS (
        SELECT t.oid
        FROM   meant AS p CROSS JOIN LATERAL (
                   SELECT p.table_oid UNION SELECT p.destination_oid
                   UNION SELECT c.oid FROM pg_class AS c WHERE c.relname = p.destination_table
                       AND c.relnamespace = (SELECT n.oid FROM pg_namespace AS n
                           WHERE n.nspname = coalesce(p.destination_schema, p.table_schema))
                   UNION SELECT j.oid FROM embedsidecar.joined_tables(p.joins) AS j) AS t (oid)),
    called AS ( -- by texts that are reranked
        SELECT f.proowner, f.pronamespace
        FROM   meant AS p CROSS JOIN unnest(p.functions) AS u (name) CROSS JOIN parse_ident(u.name) AS part
               JOIN pg_namespace AS n ON n.nspname = part[1]
               JOIN pg_proc AS f ON f.pronamespace = n.oid AND f.proname = part[2]),
    below AS (SELECT r.oid FROM root AS r UNION SELECT h.inhrelid FROM below AS b
        JOIN pg_inherits AS h ON h.inhparent = b.oid),
    above AS (SELECT r.oid FROM root AS r UNION SELECT h.inhparent FROM above AS a
        JOIN pg_inherits AS h ON h.inhrelid = a.oid),
    part AS (SELECT c.oid, c.relowner, c.relnamespace FROM pg_class AS c
        WHERE c.oid IN (SELECT b.oid FROM below AS b UNION SELECT a.oid FROM above AS a)),
    held (class, oid) AS (
        SELECT 'pg_constraint'::regclass, k.oid FROM part AS p JOIN pg_constraint AS k ON k.conrelid = p.oid
        UNION ALL SELECT 'pg_class'::regclass, i.indexrelid FROM part AS p JOIN pg_index AS i ON i.indrelid = p.oid
        UNION ALL SELECT 'pg_statistic_ext'::regclass, s.oid FROM part AS p
            JOIN pg_statistic_ext AS s ON s.stxrelid = p.oid
        UNION ALL SELECT 'pg_policy'::regclass, y.oid FROM part AS p JOIN pg_policy AS y ON y.polrelid = p.oid),
    owner AS (
        SELECT p.relowner AS oid, 1 AS rank FROM part AS p
        UNION SELECT f.proowner, 1 FROM held AS h JOIN pg_depend AS d ON d.classid = h.class AND d.objid = h.oid
            JOIN pg_proc AS f ON f.oid = CASE d.refclassid WHEN 'pg_proc'::regclass THEN d.refobjid
                WHEN 'pg_operator'::regclass THEN (SELECT o.oprcode FROM pg_operator AS o WHERE o.oid = d.refobjid) END
        UNION SELECT c.proowner, 1 FROM called AS c
        UNION SELECT e.extowner, 2 FROM pg_extension AS e WHERE e.extname = 'vector'
        UNION SELECT n.nspowner, 2 FROM pg_namespace AS n WHERE n.oid IN (SELECT p.relnamespace FROM part AS p
            UNION SELECT c.pronamespace FROM called AS c
            UNION SELECT e.extnamespace FROM pg_extension AS e WHERE e.extname = 'vector'))
    SELECT o.rolname FROM owner AS w JOIN pg_roles AS r ON r.oid = w.oid
           JOIN pg_roles AS o ON o.oid = CASE WHEN r.rolname = 'pg_database_owner' THEN (SELECT d.datdba
               FROM pg_database AS d WHERE d.datname = current_database()) ELSE r.oid END
    WHERE  NOT o.rolsuper ORDER BY w.rank, o.rolname LIMIT 1
$$;
COMMENT ON FUNCTION embedsidecar.search_owner IS
    'For neighbours: an owner of the tables of a pipeline, of functions in their constraints, indexes, statistics and '
    'policies or in its texts, of their schemas or of pgvector who is no superuser; NULL: none.';

CREATE OR REPLACE FUNCTION embedsidecar.neighbours(pipeline text, vector text, k integer DEFAULT 10,
    filter jsonb DEFAULT NULL, "offset" integer DEFAULT 0, max_distance double precision DEFAULT NULL,
    fresh_only boolean DEFAULT false) RETURNS SETOF embedsidecar.found_row
LANGUAGE plpgsql STABLE ROWS 10 SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    most       constant integer := 10000;
    wanted     integer := k + "offset";
    candidates integer := wanted;
    finder     record;
    found      embedsidecar.found_row[];
    vectors    bigint;
    ended      boolean := false; -- the remaining rows are too far away
    exactly    boolean := false;
    ef         text := current_setting('hnsw.ef_search', true);
    scan       text := current_setting('hnsw.iterative_scan', true);
    owner      name;
    lacks      text;
    stale      text[];
BEGIN
    -- An owner's code, in an index for example, runs with the rights of the table's reader; SET ROLE does not stop it.
    IF (SELECT bool_or(r.rolsuper) FROM pg_roles AS r WHERE r.rolname IN (current_user, session_user)) THEN
        owner := embedsidecar.search_owner(pipeline);
        IF owner IS NOT NULL THEN
            RAISE EXCEPTION 'a superuser may not search tables of "%", tables in its schemas, or tables with its '
                'functions: these could run with superuser privileges', owner
                USING ERRCODE = 'insufficient_privilege',
                    HINT = 'connect as an ordinary role that may read them';
        END IF;
    END IF;
    PERFORM embedsidecar.check_search('neighbours', k, "offset", max_distance, fresh_only);
    IF vector IS NULL THEN
        RAISE EXCEPTION 'expected a vector, not NULL' USING ERRCODE = 'null_value_not_allowed',
            HINT = 'the row has no vector, or does not exist';
    END IF;
    SELECT * INTO finder FROM embedsidecar.search_statement(pipeline, filter);
    lacks := embedsidecar.missing_grants(finder.tables, finder.columns);
    IF lacks IS NOT NULL THEN
        RAISE EXCEPTION 'role "%" lacks privileges to search pipeline "%"', current_user, pipeline
            USING ERRCODE = 'insufficient_privilege', HINT = lacks;
    END IF;
    LOOP
        -- By default an HNSW index finds at most 40 vectors, before any policy of the table applies.
        PERFORM set_config('hnsw.ef_search', least(greatest(candidates, 40), 1000)::text, true);
        IF finder.iterative THEN
            PERFORM set_config('hnsw.iterative_scan', 'strict_order', true);
        END IF;
        EXECUTE CASE WHEN exactly THEN finder.exact ELSE finder.near END INTO found, vectors USING vector, candidates,
            CASE WHEN fresh_only THEN candidates ELSE wanted END, finder.given;
        -- The names were looked up just now, but their meaning by the caller's snapshot: a switch of the model may lie
        -- between. From here on none can, because the tables have been read.
        IF NOT embedsidecar.still_named(finder.relation, finder.attnum, finder.called) THEN
            RAISE EXCEPTION 'the model of pipeline "%" was switched during the search', pipeline
                USING ERRCODE = 'serialization_failure', HINT = 'embed the query again, then repeat the search';
        END IF;
        IF vectors < candidates AND finder.exact IS NOT NULL AND NOT exactly THEN
            exactly := true;
            CONTINUE;
        END IF;
        IF max_distance IS NOT NULL THEN
            ended := EXISTS (SELECT FROM unnest(found) AS f WHERE f.distance > max_distance);
            found := ARRAY(SELECT f FROM unnest(found) AS f WHERE f.distance <= max_distance ORDER BY f.distance);
        END IF;
        IF fresh_only THEN
            stale := embedsidecar.rows_with_tasks(finder.pipeline_id, ARRAY(SELECT f.row_key FROM unnest(found) AS f));
            found := ARRAY(SELECT f FROM unnest(found) AS f WHERE f.row_key <> ALL (stale));
        END IF;
        -- Several chunks of one row may have displaced other rows.
        EXIT WHEN cardinality(found) >= wanted OR ended OR vectors < candidates OR candidates >= most;
        candidates := least(2 * candidates, most);
    END LOOP;
    PERFORM set_config('hnsw.ef_search', coalesce(ef, '40'), true);
    IF finder.iterative THEN
        PERFORM set_config('hnsw.iterative_scan', coalesce(scan, 'off'), true);
    END IF;
    RETURN QUERY SELECT f.row_key, f.key, f.distance, f.chunk_no, f.chunk_text
        FROM unnest(found) WITH ORDINALITY AS f (row_key, key, distance, chunk_no, chunk_text, place)
        WHERE f.place > "offset" ORDER BY f.place LIMIT k;
END $$;
COMMENT ON FUNCTION embedsidecar.neighbours IS
    'Rows of a pipeline with the vectors nearest to a vector, with the rights and the policies of the caller, who '
    'needs SELECT on the key, on the vectors, and on chunks if texts are cut. The vector is in pgvector''s text form: '
    'embedsidecar.neighbours(''public.docs'', (SELECT embedding::text FROM docs WHERE id = 1)). The other parameters '
    'are those of search.';

CREATE OR REPLACE FUNCTION embedsidecar.check_search(caller text, k integer, "offset" integer,
    max_distance double precision, fresh_only boolean) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    most constant integer := 10000;
BEGIN
    IF k IS NULL OR k NOT BETWEEN 1 AND most THEN
        RAISE EXCEPTION '%: expected a number of rows from 1 to %, not %', caller, most, coalesce(k::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF "offset" IS NULL OR "offset" NOT BETWEEN 0 AND most - k THEN
        RAISE EXCEPTION '%: "offset": expected a number from 0 to %, not %', caller, most - k,
            coalesce("offset"::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = format('a search finds %s rows at most', most);
    END IF;
    IF max_distance IN ('NaN', 'Infinity', '-Infinity') OR fresh_only IS NULL THEN
        RAISE EXCEPTION '%: max_distance is a number, and fresh_only true or false', caller
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
COMMENT ON FUNCTION embedsidecar.check_search IS 'Raises an error for invalid parameters of search and neighbours.';

CREATE OR REPLACE FUNCTION embedsidecar.check_rerank(caller text, rerank integer, wanted integer) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    most constant integer := 1000;
BEGIN
    IF rerank < wanted OR rerank > most THEN
        RAISE EXCEPTION '%: rerank: expected a number of candidates from % (the rows that are wanted) to %, not %',
            caller, wanted, most, rerank USING ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
COMMENT ON FUNCTION embedsidecar.check_rerank IS 'Raises an error for an invalid number of candidates; NULL is valid.';

-- As in internal/pipeline/text.go. The expression is not in the catalog: it comes from our own tables.
CREATE OR REPLACE FUNCTION embedsidecar.text_statement(pipeline text, OUT statement text, OUT tables oid[],
    OUT columns text[])
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    p      record;
    source text;
    same   text;
    parts  text;
BEGIN
    SELECT * INTO STRICT p FROM embedsidecar.pipeline AS q
        WHERE q.pipeline_id = embedsidecar.pipeline_meant(text_statement.pipeline);
    SELECT CASE WHEN c.relkind = 'p' THEN '' ELSE 'ONLY ' END || format('%I.%I', n.nspname, c.relname) INTO source
    FROM   pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = p.table_oid;
    -- A type that is not built in is read as text: its casts and operators may be code of its owner.
    WITH types AS (
        SELECT a.attname, t.base, format_type(t.base, -1) AS type
        FROM   pg_attribute AS a CROSS JOIN LATERAL embedsidecar.base_of(a.atttypid) AS t (base)
        WHERE  a.attrelid = p.table_oid AND a.attnum > 0 AND NOT a.attisdropped)
    SELECT (SELECT string_agg(CASE WHEN t.base < 16384
                       THEN format('r.%I OPERATOR(pg_catalog.=) CAST($1 ->> %L AS %s)', t.attname, t.attname, t.type)
                       ELSE format($q$format('%%s', r.%I) = $1 ->> %L$q$, t.attname, t.attname) END, ' AND ')
            FROM   types AS t WHERE t.attname = ANY (p.key_columns)),
           (SELECT string_agg(CASE WHEN t.base < 16384 THEN format($q$nullif(r.%I::text, '')$q$, t.attname)
                       ELSE format($q$nullif(format('%%s', r.%I), '')$q$, t.attname) END, ', ' ORDER BY x.n)
            FROM   unnest(p.source_columns) WITH ORDINALITY AS x (name, n) JOIN types AS t ON t.attname = x.name)
    INTO   same, parts;
    -- The line breaks end a trailing comment.
    statement := 'SELECT left('
        || CASE WHEN p.joined_text IS NOT NULL THEN p.joined_text
                WHEN p.text_expression <> '' THEN E'((\n' || p.text_expression || E'\n))::text'
                ELSE $q$concat_ws(E'\n\n', $q$ || parts || ')' END
        || ', $2) FROM ' || source || ' AS r WHERE ' || same;
    statement := CASE WHEN embedsidecar.reads(p.table_oid) THEN statement END;
    columns := p.key_columns::text[]
        || coalesce(CASE WHEN p.text_expression <> '' THEN p.watched_columns ELSE p.source_columns END, '{}')::text[];
    tables := array_fill(p.table_oid, ARRAY[cardinality(columns)]);
    SELECT columns || coalesce(array_agg(u.name), '{}'), tables || coalesce(array_agg(j.oid), '{}') INTO columns, tables
    FROM   embedsidecar.joined_tables(p.joins) AS j CROSS JOIN unnest(j.uses) AS u (name);
END $$;
COMMENT ON FUNCTION embedsidecar.text_statement IS
    'For candidates: the statement that returns the beginning ($2 characters) of the pipeline''s text of the row with '
    'a key ($1), and what it reads.';

CREATE OR REPLACE FUNCTION embedsidecar.nearest_to(pipeline text, content text, k integer, timeout interval,
    filter jsonb, "offset" integer, max_distance double precision, fresh_only boolean) RETURNS embedsidecar.found_row[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    vector text;
    served text;
    found  embedsidecar.found_row[];
    began  timestamptz := clock_timestamp();
BEGIN
    -- The query may have been embedded by the previous model. Once the rows are read, no switch is possible until the
    -- transaction ends.
    LOOP
        served := embedsidecar.served_by(pipeline);
        vector := embedsidecar.embed(content, pipeline, timeout);
        BEGIN
            found := ARRAY(SELECT n FROM embedsidecar.neighbours(pipeline, vector, k, filter, "offset", max_distance,
                fresh_only) AS n);
        EXCEPTION WHEN serialization_failure OR data_exception THEN
            IF served = embedsidecar.served_by(pipeline) AND SQLSTATE <> '40001'
               OR current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted')
               OR clock_timestamp() >= began + timeout THEN
                RAISE;
            END IF;
            CONTINUE;
        END;
        EXIT WHEN served = embedsidecar.served_by(pipeline);
    END LOOP;
    RETURN found;
END $$;
COMMENT ON FUNCTION embedsidecar.nearest_to IS 'For search: the rows that are nearest to a text.';

CREATE OR REPLACE FUNCTION embedsidecar.candidates(pipeline text, content text, rerank integer, timeout interval,
    filter jsonb, max_distance double precision, fresh_only boolean, OUT hits embedsidecar.found_row[],
    OUT texts text[])
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    reader record;
    lacks  text;
    one    text;
    -- enough for what a model reads, and together no more than a message can hold
    most   constant integer := least(16384, 1000000 / rerank);
BEGIN
    SELECT * INTO reader FROM embedsidecar.text_statement(pipeline);
    lacks := embedsidecar.missing_grants(reader.tables, reader.columns);
    IF lacks IS NOT NULL THEN
        RAISE EXCEPTION 'role "%" lacks privileges to rerank texts of pipeline "%"', current_user, pipeline
            USING ERRCODE = 'insufficient_privilege', HINT = lacks;
    END IF;
    hits := embedsidecar.nearest_to(pipeline, content, rerank, timeout, filter, 0, max_distance, fresh_only);
    texts := '{}';
    FOR i IN 1..cardinality(hits) LOOP
        one := left((hits[i]).chunk_text, most);
        IF one IS NULL THEN
            -- A row whose text fails does not fail the search: it comes last.
            BEGIN
                EXECUTE reader.statement INTO one USING (hits[i]).key, most;
            EXCEPTION WHEN data_exception OR raise_exception THEN
                one := '';
            END;
        END IF;
        texts := texts || coalesce(one, '');
    END LOOP;
END $$;
COMMENT ON FUNCTION embedsidecar.candidates IS
    'For search with rerank: the rows nearest to a text, with the text of each: of the nearest chunk if chunks are '
    'stored. With the rights and the policies of the caller.';

CREATE OR REPLACE FUNCTION embedsidecar.search(pipeline text, content text, k integer DEFAULT 10,
    timeout interval DEFAULT '5 s', filter jsonb DEFAULT NULL, "offset" integer DEFAULT 0,
    max_distance double precision DEFAULT NULL, fresh_only boolean DEFAULT false, rerank integer DEFAULT NULL)
RETURNS SETOF embedsidecar.found_row
LANGUAGE plpgsql ROWS 10 SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    c      record;
    scores real[];
    began  timestamptz := clock_timestamp();
BEGIN
    -- Checked before anything is embedded.
    PERFORM embedsidecar.check_search('search', k, "offset", max_distance, fresh_only);
    PERFORM embedsidecar.check_rerank('search', rerank, k + "offset");
    IF pipeline IS NULL THEN
        RAISE EXCEPTION 'search: name a pipeline' USING ERRCODE = 'null_value_not_allowed';
    END IF;
    IF filter IS NOT NULL THEN
        PERFORM embedsidecar.search_statement(pipeline, filter);
    END IF;
    IF rerank IS NULL THEN
        RETURN QUERY SELECT f.* FROM unnest(embedsidecar.nearest_to(pipeline, content, k, timeout, filter, "offset",
            max_distance, fresh_only)) AS f;
        RETURN;
    END IF;
    SELECT * INTO c FROM embedsidecar.candidates(pipeline, content, rerank, timeout, filter, max_distance, fresh_only);
    IF cardinality(c.texts) = 0 THEN
        RETURN;
    END IF;
    scores := embedsidecar.rerank(pipeline, content, c.texts,
        greatest(began + timeout - clock_timestamp(), interval '1 ms'));
    RETURN QUERY
        SELECT f.row_key, f.key, f.distance, f.chunk_no, f.chunk_text
        FROM  (SELECT u.*, row_number() OVER (ORDER BY scores[u.n] DESC, u.n) AS place
               FROM unnest(c.hits) WITH ORDINALITY AS u (row_key, key, distance, chunk_no, chunk_text, n)) AS f
        WHERE  f.place > "offset" ORDER BY f.place LIMIT k;
END $$;
COMMENT ON FUNCTION embedsidecar.search IS
    'Rows of a pipeline by meaning: those nearest to a text, nearest first, with the rights and the policies of the '
    'caller. filter has conditions on columns: {"status": "published", "price": {"$lt": 20}}; "offset" skips the '
    'nearest; max_distance leaves out rows farther away; fresh_only leaves out rows that wait to be embedded again. '
    'With rerank, a reranker orders that many candidates. Like embed, it asks the sidecar from PostgreSQL 17 on, in '
    'READ COMMITTED, on the primary; after CALL embedsidecar.ask it answers in any transaction.';

CREATE OR REPLACE FUNCTION embedsidecar.search_across(pipelines text[], content text, k integer DEFAULT 10,
    timeout interval DEFAULT '5 s', filter jsonb DEFAULT NULL, "offset" integer DEFAULT 0,
    max_distance double precision DEFAULT NULL, fresh_only boolean DEFAULT false, rerank integer DEFAULT NULL)
RETURNS TABLE (pipeline text, row_key text, key jsonb, distance double precision, chunk_no integer, chunk_text text,
    score double precision)
LANGUAGE plpgsql ROWS 10 SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    one    text;
    s      record;
    ids    integer[] := '{}';
    names  text[] := '{}';
    tables oid[] := '{}';
    hits   embedsidecar.found_row[];
    found  embedsidecar.found_row[] := '{}';
    places integer[] := '{}';
    froms  integer[] := '{}';
    depth  integer := search_across.k + search_across."offset";
    began  timestamptz := clock_timestamp();
BEGIN
    -- As in internal/search/across.go.
    IF pipelines IS NULL OR cardinality(pipelines) NOT BETWEEN 1 AND 16 THEN
        RAISE EXCEPTION 'search_across: expected a list of 1 to 16 pipelines' USING
            ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM embedsidecar.check_search('search_across', k, "offset", max_distance, fresh_only);
    PERFORM embedsidecar.check_rerank('search_across', rerank, depth);
    IF depth > 1000 THEN
        RAISE EXCEPTION 'search_across: several pipelines find 1000 rows at most, with the offset'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- All pipelines are checked before anything is embedded.
    FOREACH one IN ARRAY pipelines LOOP
        SELECT * INTO s FROM embedsidecar.search_statement(one, filter);
        CONTINUE WHEN s.pipeline_id = ANY (ids);
        -- A row may be far down in one ranking and not in another: pages must fit together.
        IF s.tables[1] = ANY (tables) THEN
            depth := greatest(depth, least(100, rerank));
        END IF;
        ids := ids || s.pipeline_id;
        names := names || s.name;
        tables := tables || s.tables[1];
    END LOOP;
    FOR i IN 1..cardinality(names) LOOP
        hits := ARRAY(SELECT f FROM embedsidecar.search(names[i], content, depth, greatest(began + timeout
            - clock_timestamp(), interval '1 ms'), filter, 0, max_distance, fresh_only, rerank) AS f);
        found := found || hits;
        places := places || ARRAY(SELECT generate_series(1, cardinality(hits)));
        froms := froms || array_fill(i, ARRAY[cardinality(hits)]);
    END LOOP;
    RETURN QUERY
        SELECT names[x.n], x.row_key, x.key, x.distance, x.chunk_no, x.chunk_text, x.score
        FROM  (SELECT u.*, sum(1.0::float8 / (60 + u.place)) OVER same AS score,
                      row_number() OVER (same ORDER BY u.n) AS nth
               FROM   unnest(found, places, froms)
                          AS u (row_key, key, distance, chunk_no, chunk_text, place, n)
               WINDOW same AS (PARTITION BY tables[u.n], u.row_key)) AS x
        WHERE  x.nth = 1 ORDER BY x.score DESC, x.n, x.place OFFSET "offset" LIMIT k;
END $$;
COMMENT ON FUNCTION embedsidecar.search_across IS
    'Rows of several pipelines by meaning, as search finds those of each, joined by rank (reciprocal rank fusion), so '
    'their models may differ. pipeline is the row''s pipeline, score its rank score. A row that several pipelines of '
    'one table find is one row. An error of one pipeline fails the search.';

CREATE OR REPLACE FUNCTION embedsidecar.highlight(document text, content text, language regconfig DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    words regconfig := coalesce(highlight.language, get_current_ts_config());
    query tsquery;
BEGIN
    -- As in internal/search/sql.go. Words are marked by characters that are removed from the text; then it is escaped.
    SELECT coalesce(string_agg('''' || replace(replace(w.lexeme, '\', '\\'), '''', '''''') || '''', ' | '),
        '')::tsquery INTO query FROM unnest(to_tsvector(words, highlight.content)) AS w;
    RETURN replace(replace(replace(replace(replace(replace(replace(
        ts_headline(words, translate(left(highlight.document, 65536), E'\x02\x03', ''), query,
            E'StartSel="\x02", StopSel="\x03", MaxFragments=3, MinWords=10, MaxWords=30, FragmentDelimiter=" ... "'),
        '&', '&amp;'), '<', '&lt;'), '>', '&gt;'), '"', '&#34;'), '''', '&#39;'), E'\x02', '<mark>'), E'\x03',
        '</mark>');
END $$;
COMMENT ON FUNCTION embedsidecar.highlight IS
    'Passages of a text as escaped HTML, with the words of a query in <mark>: embedsidecar.highlight(d.body, ''reset '
    'my password'', ''english''). Uses default_text_search_config, or the given text search configuration. Reads the '
    'first 65,536 characters of a text.';
