-- Budgets of pipelines and models, and what was spent. Docs: docs/configuration.md, Budgets.

CREATE OR REPLACE FUNCTION embedsidecar.zone_or_utc(zone text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM now() AT TIME ZONE zone_or_utc.zone;
    RETURN zone_or_utc.zone;
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN 'UTC';
END $$;
COMMENT ON FUNCTION embedsidecar.zone_or_utc IS 'The time zone, or UTC if the server does not know it any more.';

-- A call that is not counted yet may still run: the caller decides whether its expected tokens count. The counted day
-- may be up to two days ahead of today, in another time zone. A later one is of a clock that was set back since.
CREATE OR REPLACE FUNCTION embedsidecar.judge_budgets(given jsonb, held boolean)
RETURNS TABLE (kind text, name text, tokens_per_day bigint, tokens bigint, money_per_day double precision,
    money double precision, tokens_today bigint, tokens_spent bigint, money_today double precision,
    money_spent double precision, spent text, goes_on timestamptz, words text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
WITH given AS (
    SELECT b.kind, b.name, embedsidecar.zone_or_utc(coalesce(b.budget ->> 'zone', 'UTC')) AS zone, l.*
    FROM   jsonb_to_recordset(judge_budgets.given) AS b (kind text, name text, budget jsonb)
           CROSS JOIN LATERAL jsonb_to_record(b.budget) AS l (tokens_per_day bigint, tokens bigint,
               money_per_day double precision, money double precision)
), counted AS (
    SELECT g.*, CASE WHEN s.day BETWEEN d.today AND d.today + 2 THEN s.day ELSE d.today END AS day,
           coalesce(s.tokens, 0) + h.likely AS tokens_spent, coalesce(s.money, 0) + h.price AS money_spent,
           CASE WHEN s.day BETWEEN d.today AND d.today + 2 THEN s.tokens_today ELSE 0 END + h.likely AS tokens_today,
           CASE WHEN s.day BETWEEN d.today AND d.today + 2 THEN s.money_today ELSE 0 END + h.price AS money_today
    FROM   given AS g CROSS JOIN LATERAL (SELECT (now() AT TIME ZONE g.zone)::date AS today) AS d
           LEFT JOIN embedsidecar.spending AS s ON s.kind = g.kind AND s.name = g.name
           CROSS JOIN LATERAL (
               SELECT coalesce(sum(o.likely), 0)::bigint AS likely, coalesce(sum(o.likely * o.price / 1e6), 0) AS price
               FROM embedsidecar.hold AS o
               WHERE judge_budgets.held AND g.name = CASE g.kind WHEN 'model' THEN o.model ELSE o.pipeline END) AS h
), judged AS (
    SELECT c.*, CASE WHEN c.tokens_spent >= c.tokens THEN 'tokens' WHEN c.money_spent >= c.money THEN 'money'
                     WHEN c.tokens_today >= c.tokens_per_day THEN 'tokens_per_day'
                     WHEN c.money_today >= c.money_per_day THEN 'money_per_day' ELSE '' END AS spent
    FROM   counted AS c
)
SELECT j.kind, j.name, j.tokens_per_day, j.tokens, j.money_per_day, j.money, j.tokens_today, j.tokens_spent,
    j.money_today, j.money_spent, j.spent,
       CASE WHEN j.spent LIKE '%_per_day' THEN (j.day + 1)::timestamp AT TIME ZONE j.zone
            WHEN j.spent <> '' THEN 'infinity' END,
       format('the budget %s of %s %s is spent (%s); %s', j.spent, j.kind, j.name,
           CASE j.spent WHEN 'tokens' THEN format('%s of %s', j.tokens_spent, j.tokens)
               WHEN 'money' THEN format('%s of %s', round(j.money_spent::numeric, 4), j.money::numeric)
               WHEN 'tokens_per_day' THEN format('%s of %s', j.tokens_today, j.tokens_per_day)
               ELSE format('%s of %s', round(j.money_today::numeric, 4), j.money_per_day::numeric) END,
           CASE WHEN j.spent LIKE '%_per_day' THEN format('work continues at %s 00:00 %s', j.day + 1, j.zone)
               ELSE 'work continues when the budget is raised' END)
FROM   judged AS j
$$;
COMMENT ON FUNCTION embedsidecar.judge_budgets IS 'What is left of some budgets: kind, name and budget of each.';

CREATE OR REPLACE FUNCTION embedsidecar.budgets_given(pipeline_id integer) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT coalesce(jsonb_agg(to_jsonb(b)), '[]')
FROM   embedsidecar.pipeline AS p
       CROSS JOIN LATERAL (VALUES ('model', p.model, p.model_budget), ('pipeline', coalesce((SELECT s.name
           FROM embedsidecar.pipeline AS s WHERE s.pipeline_id = p.beside), p.name), p.budget))
           AS b (kind, name, budget)
WHERE  p.pipeline_id = budgets_given.pipeline_id AND b.budget IS NOT NULL
$$;
COMMENT ON FUNCTION embedsidecar.budgets_given IS 'The budgets of a pipeline, as they are configured.';

CREATE OR REPLACE FUNCTION embedsidecar.budgets(pipeline_id integer, held boolean DEFAULT false)
RETURNS TABLE (kind text, name text, tokens_per_day bigint, tokens bigint, money_per_day double precision,
    money double precision, tokens_today bigint, tokens_spent bigint, money_today double precision,
    money_spent double precision, spent text, goes_on timestamptz, words text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT * FROM embedsidecar.judge_budgets(embedsidecar.budgets_given(budgets.pipeline_id), budgets.held)
$$;
COMMENT ON FUNCTION embedsidecar.budgets IS
    'The budgets of a pipeline: its own and that of its model. spent names the limit that is reached; empty: none.';

CREATE OR REPLACE FUNCTION embedsidecar.affords(pipeline_id integer) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT NOT EXISTS (SELECT FROM embedsidecar.budgets(affords.pipeline_id) AS b WHERE b.spent <> '')
$$;
COMMENT ON FUNCTION embedsidecar.affords IS 'Whether no budget of a pipeline is spent.';

-- Inlined like is_open: a pipeline without a budget costs two comparisons with NULL.
CREATE OR REPLACE FUNCTION embedsidecar.has_budget(budget jsonb, model_budget jsonb, pipeline_id integer)
RETURNS boolean LANGUAGE sql STABLE
RETURN budget IS NULL AND model_budget IS NULL OR embedsidecar.affords(pipeline_id);
COMMENT ON FUNCTION embedsidecar.has_budget IS 'Whether a pipeline has no budget, or something is left of it.';

-- Lock order: first the model's row, then the pipeline's.
CREATE OR REPLACE FUNCTION embedsidecar.spend(model text, pipeline text, tokens bigint, price double precision)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    each record;
BEGIN
    FOR each IN SELECT * FROM (VALUES ('model', spend.model), ('pipeline', spend.pipeline)) AS o (kind, name)
        WHERE o.name IS NOT NULL ORDER BY o.kind LOOP
        UPDATE embedsidecar.spending AS s
        SET    day = CASE WHEN s.day BETWEEN d.today AND d.today + 2 THEN s.day ELSE d.today END,
               tokens = s.tokens + spend.tokens, money = s.money + spend.tokens * spend.price / 1e6,
               tokens_today = CASE WHEN s.day BETWEEN d.today AND d.today + 2 THEN s.tokens_today ELSE 0 END
                   + spend.tokens,
               money_today = CASE WHEN s.day BETWEEN d.today AND d.today + 2 THEN s.money_today ELSE 0 END
                   + spend.tokens * spend.price / 1e6
        FROM   (SELECT (clock_timestamp() AT TIME ZONE embedsidecar.zone_or_utc(z.zone))::date AS today
                FROM embedsidecar.spending AS z WHERE z.kind = each.kind AND z.name = each.name) AS d
        WHERE  s.kind = each.kind AND s.name = each.name;
    END LOOP;
END $$;
COMMENT ON FUNCTION embedsidecar.spend IS 'Counts tokens against the budgets of a model and of a pipeline.';

-- A call is allowed while something is left after the expected tokens of uncounted calls. So a budget is exceeded by no
-- more than the calls in progress. With must the call is allowed whatever is left.
CREATE OR REPLACE FUNCTION embedsidecar.hold_budgets(given jsonb, worker_id bigint, likely bigint, most bigint,
    price double precision, must boolean, until timestamptz DEFAULT NULL,
    OUT hold bigint, OUT reason text, OUT goes_on timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    of_model    text;
    of_pipeline text;
    left_behind record;
    each        record;
BEGIN
    FOR each IN SELECT b.kind, b.name, coalesce(b.budget ->> 'zone', 'UTC') AS zone
        FROM jsonb_to_recordset(hold_budgets.given) AS b (kind text, name text, budget jsonb) ORDER BY b.kind LOOP
        IF each.kind = 'model' THEN of_model := each.name; ELSE of_pipeline := each.name; END IF;
        INSERT INTO embedsidecar.spending AS s (kind, name, zone, day)
        VALUES (each.kind, each.name, each.zone, (now() AT TIME ZONE embedsidecar.zone_or_utc(each.zone))::date)
        ON CONFLICT DO NOTHING;
        -- Other reservations wait here, so that the next statements see them.
        UPDATE embedsidecar.spending AS s SET zone = each.zone WHERE s.kind = each.kind AND s.name = each.name
            AND s.zone <> each.zone;
        PERFORM FROM embedsidecar.spending AS s WHERE s.kind = each.kind AND s.name = each.name FOR UPDATE;
    END LOOP;
    IF of_model IS NULL AND of_pipeline IS NULL THEN
        RETURN; -- the budget was removed
    END IF;
    FOR left_behind IN DELETE FROM embedsidecar.hold AS h WHERE (h.model = of_model OR h.pipeline = of_pipeline)
            AND (h.expires_at < now() OR h.worker_id NOT IN (0, hold_budgets.worker_id) AND NOT EXISTS (
                SELECT FROM embedsidecar.worker AS w WHERE w.worker_id = h.worker_id AND embedsidecar.runs(w)))
        RETURNING h.* LOOP
        PERFORM embedsidecar.spend(left_behind.model, left_behind.pipeline, left_behind.most, left_behind.price);
    END LOOP;
    IF NOT hold_budgets.must THEN
        SELECT string_agg(b.words, '; ' ORDER BY b.goes_on DESC), max(b.goes_on) INTO reason, goes_on
        FROM   embedsidecar.judge_budgets(hold_budgets.given, false) AS b WHERE b.spent <> '';
        IF goes_on IS NOT NULL THEN
            RETURN;
        END IF;
        IF EXISTS (SELECT FROM embedsidecar.judge_budgets(hold_budgets.given, true) AS b WHERE b.spent <> '') THEN
            reason := 'calls in progress are expected to spend the rest of the budget';
            RETURN;
        END IF;
    END IF;
    INSERT INTO embedsidecar.hold AS h (model, pipeline, worker_id, expires_at, likely, most, price)
    VALUES (of_model, of_pipeline, hold_budgets.worker_id,
        coalesce(hold_budgets.until, now() + interval '10 minutes'), hold_budgets.likely, hold_budgets.most,
        hold_budgets.price)
    RETURNING h.hold_id INTO hold;
END $$;
COMMENT ON FUNCTION embedsidecar.hold_budgets IS
    'Before a call of an embedder: reserves its tokens in some budgets, or says why that is not allowed.';

CREATE OR REPLACE FUNCTION embedsidecar.hold_budget(pipeline_id integer, worker_id bigint, likely bigint, most bigint,
    price double precision, must boolean, until timestamptz DEFAULT NULL,
    OUT hold bigint, OUT reason text, OUT goes_on timestamptz)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT * FROM embedsidecar.hold_budgets(embedsidecar.budgets_given(hold_budget.pipeline_id), hold_budget.worker_id,
    hold_budget.likely, hold_budget.most, hold_budget.price, hold_budget.must, hold_budget.until)
$$;
COMMENT ON FUNCTION embedsidecar.hold_budget IS
    'Before a call of an embedder: reserves its tokens in the budgets of a pipeline, or says why that is not allowed.';

CREATE OR REPLACE FUNCTION embedsidecar.settle_budget(hold bigint, tokens bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    paid record;
BEGIN
    FOR paid IN DELETE FROM embedsidecar.hold AS h WHERE h.hold_id = settle_budget.hold RETURNING h.* LOOP
        PERFORM embedsidecar.spend(paid.model, paid.pipeline, coalesce(settle_budget.tokens, paid.likely),
            paid.price);
    END LOOP;
END $$;
COMMENT ON FUNCTION embedsidecar.settle_budget IS
    'After the call: counts the tokens that it took; NULL: not known, so it counts about as many as expected. A call '
    'that was already counted as one of a killed sidecar stays so.';
