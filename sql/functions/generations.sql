-- The generations of a pipeline, and how one replaces the other. Docs: docs/change-the-model.md. A switch is one
-- transaction: it identifies destinations by their numbers, and exchanges only their names and those of the rows in
-- embedsidecar.pipeline. Names of users' tables come from the catalog by these numbers.

CREATE OR REPLACE FUNCTION embedsidecar.destination_of(id integer, OUT relation oid, OUT attnum smallint,
    OUT schema_name name, OUT table_name name, OUT column_name name, OUT type text, OUT quoted text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT c.oid, a.attnum, n.nspname, c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
    format('%I.%I', n.nspname, c.relname)
FROM   embedsidecar.pipeline AS p
       -- A table that was recreated, or restored from a dump, has another number. Within a switch, its name is that of
       -- the other generation, and so is that generation's number. The schema of the source may have been renamed.
       LEFT JOIN LATERAL (SELECT t.oid FROM pg_class AS t JOIN pg_namespace AS s ON s.oid = t.relnamespace
           WHERE s.nspname = p.destination_schema AND t.relname = p.destination_table AND t.relkind IN ('r', 'p')
               AND (t.oid = p.destination_oid OR embedsidecar.may_work(t.relowner))
               AND NOT EXISTS (SELECT FROM embedsidecar.pipeline AS o
                   WHERE o.destination_oid = t.oid AND o.pipeline_id <> p.pipeline_id)
               AND NOT EXISTS (SELECT FROM pg_class AS f JOIN pg_class AS k ON k.relnamespace = f.relnamespace
                   WHERE f.oid = p.table_oid AND k.oid = p.destination_oid AND k.relnamespace <> s.oid)) AS named
           ON true
       JOIN pg_class AS c ON c.oid = CASE WHEN p.destination_column IS NOT NULL THEN p.table_oid
           ELSE coalesce(named.oid, p.destination_oid) END
       JOIN pg_namespace AS n ON n.oid = c.relnamespace
       JOIN pg_attribute AS a ON a.attrelid = c.oid AND NOT a.attisdropped
           AND CASE WHEN p.destination_column IS NULL THEN a.attname = 'embedding'
                    ELSE a.attnum = (p.column_numbers ->> p.destination_column::text)::smallint
                        -- In a restored database the number may be that of another table.
                        AND (c.relname = p.table_name OR a.attname = p.destination_column) END
WHERE  p.pipeline_id = destination_of.id
$$;
COMMENT ON FUNCTION embedsidecar.destination_of IS
    'Where the vectors of a generation are now: an embedding table by its name, a column by the numbers of table and '
    'column.';

CREATE OR REPLACE FUNCTION embedsidecar.current_model(pipeline text) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT coalesce(nullif(p.model, ''), p.plugin) FROM embedsidecar.pipeline AS p
WHERE  p.pipeline_id = embedsidecar.pipeline_meant(current_model.pipeline)
$$;
COMMENT ON FUNCTION embedsidecar.current_model IS
    'The model whose vectors are searched now: for applications that embed queries themselves.';

CREATE OR REPLACE FUNCTION embedsidecar.check_model(pipeline text, model text) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now text := embedsidecar.current_model(check_model.pipeline);
BEGIN
    IF now IS DISTINCT FROM check_model.model THEN
        RAISE EXCEPTION 'pipeline "%" now uses model "%", not "%"', check_model.pipeline, now,
            coalesce(check_model.model, 'NULL') USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'embed the query with that model, then search again';
    END IF;
    RETURN true;
END $$;
COMMENT ON FUNCTION embedsidecar.check_model IS
    'True if the vectors that are searched now are of this model, otherwise an error: SELECT id FROM docs WHERE '
    'embedsidecar.check_model(''docs'', ''my-model'') ORDER BY embedding <=> $1 LIMIT 5.';

CREATE OR REPLACE FUNCTION embedsidecar.served_by(pipeline text) RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT p.pipeline_id || ':' || p.switches FROM embedsidecar.pipeline AS p
WHERE  p.pipeline_id = embedsidecar.pipeline_meant(served_by.pipeline)
$$;
COMMENT ON FUNCTION embedsidecar.served_by IS
    'For search: a word that changes whenever another generation begins to serve.';

-- pg_identify_object returns the present name, whatever the statement's snapshot is.
CREATE OR REPLACE FUNCTION embedsidecar.still_named(relation oid, attnum integer, name text) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
SELECT coalesce((SELECT i.identity = still_named.name
                 FROM   pg_identify_object('pg_class'::regclass, still_named.relation, still_named.attnum) AS i), false)
$$;
COMMENT ON FUNCTION embedsidecar.still_named IS
    'For neighbours: whether a column has this name at this moment. A transaction that has read it keeps it from '
    'changing.';

-- Rows that are missing or stale in the other generation but not in the one that serves. The latest changes wait in
-- both.
CREATE OR REPLACE FUNCTION embedsidecar.generation_lacks(live integer, other integer, forced boolean) RETURNS text[]
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    o      record;
    scan   record;
    found  text[] := '{}';
    n      bigint;
    from_  record;
    to_    record;
BEGIN
    SELECT p.* INTO STRICT o
    FROM   embedsidecar.pipeline AS p WHERE p.pipeline_id = generation_lacks.other;
    SELECT * INTO scan FROM embedsidecar.scan AS s WHERE s.pipeline_id = o.pipeline_id;
    IF o.status <> 'active' THEN
        found := found || concat_ws(': ', 'it cannot work', o.status, nullif(o.status_detail, ''));
    END IF;
    IF scan.finished_at IS NULL OR scan.gap THEN
        found := found || concat('its backfill is not done', ': ' || scan.rows_seen || ' of about '
            || nullif(scan.rows_expected, 0) || ' rows were compared');
    END IF;
    IF generation_lacks.forced THEN
        RETURN found;
    END IF;
    IF NOT EXISTS (SELECT FROM embedsidecar.route AS r WHERE r.pipeline_id = o.pipeline_id
                   AND r.generation = o.generation) THEN
        found := found || 'no sidecar processes its changes yet: embedsidecar run'::text;
    END IF;
    SELECT count(*) INTO n FROM (
        SELECT FROM embedsidecar.task AS t
               JOIN embedsidecar.ledger AS mine ON mine.pipeline_id = generation_lacks.live
                   AND mine.row_key = t.row_key AND mine.text_hash IS NOT NULL
        WHERE  t.pipeline_id = o.pipeline_id
               AND NOT EXISTS (SELECT FROM embedsidecar.ledger AS l
                   WHERE l.pipeline_id = o.pipeline_id AND l.row_key = t.row_key)
               AND NOT EXISTS (SELECT FROM embedsidecar.task AS u
                   WHERE u.pipeline_id = generation_lacks.live AND u.row_key = t.row_key)
        LIMIT 1000) AS c;
    IF n > 0 THEN
        found := found || format('%s have no vector in it yet', CASE WHEN n = 1000 THEN '1000 rows or more'
            ELSE embedsidecar.rows_words(n) END);
    END IF;
    SELECT count(*) INTO n FROM (
        SELECT FROM embedsidecar.task AS t
        WHERE  t.pipeline_id = o.pipeline_id AND (t.state = 'failed' OR t.committed_at < now() - interval '30 s')
               AND EXISTS (SELECT FROM embedsidecar.ledger AS l
                   WHERE l.pipeline_id = o.pipeline_id AND l.row_key = t.row_key)
               AND NOT EXISTS (SELECT FROM embedsidecar.task AS u
                   WHERE u.pipeline_id = generation_lacks.live AND u.row_key = t.row_key)
        LIMIT 1000) AS c;
    IF n > 0 THEN
        found := found || format('%s have changed, and still have an old vector in it: embedsidecar tasks list %s',
            CASE WHEN n = 1000 THEN '1000 rows or more' ELSE embedsidecar.rows_words(n) END,
            embedsidecar.shell_word(o.name));
    END IF;
    SELECT * INTO from_ FROM embedsidecar.destination_of(generation_lacks.live);
    SELECT * INTO to_ FROM embedsidecar.destination_of(generation_lacks.other);
    IF EXISTS (SELECT FROM embedsidecar.vector_index(from_.relation, from_.attnum) AS i WHERE i.valid)
       AND NOT EXISTS (SELECT FROM embedsidecar.vector_index(to_.relation, to_.attnum) AS i WHERE i.valid) THEN
        found := found || (SELECT format('it lacks an index that the present generation has; a sidecar builds it if '
                'the configuration has index, otherwise: %s',
                regexp_replace(format('CREATE INDEX CONCURRENTLY ON %s USING %s (%I %s)', to_.quoted, i.method,
                    to_.column_name, CASE WHEN to_.type ~ ('^' || split_part(from_.type, '(', 1)) THEN i.operators
                        ELSE split_part(to_.type, '(', 1) || '_cosine_ops' END) || coalesce(' WITH (' || i.options
                        || ')', '') || ';', '\s+', ' ', 'g'))
            FROM embedsidecar.vector_index(from_.relation, from_.attnum) AS i WHERE i.valid LIMIT 1);
    END IF;
    RETURN found;
END $$;
COMMENT ON FUNCTION embedsidecar.generation_lacks IS
    'Why the other generation cannot replace the one that serves; empty: it can.';

CREATE OR REPLACE FUNCTION embedsidecar.vector_index(relation oid, attnum smallint)
RETURNS TABLE (name text, method text, operators text, options text, valid boolean, bytes bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT x.relname::text, m.amname::text, format('%I.%I', n.nspname, o.opcname), array_to_string(x.reloptions, ', '),
    i.indisvalid AND i.indisready, pg_relation_size(x.oid)
FROM   pg_index AS i JOIN pg_class AS x ON x.oid = i.indexrelid JOIN pg_am AS m ON m.oid = x.relam
       JOIN pg_opclass AS o ON o.oid = i.indclass[0] JOIN pg_namespace AS n ON n.oid = o.opcnamespace
WHERE  (i.indrelid = vector_index.relation)
       AND i.indkey[0] = vector_index.attnum AND m.amname NOT IN ('btree', 'hash', 'gin', 'gist', 'brin', 'spgist')
       AND i.indpred IS NULL
$$;
COMMENT ON FUNCTION embedsidecar.vector_index IS 'Indexes by which vectors are searched.';

-- A line break in a name would end the comment, and pasting the statement would run the rest of the name.
CREATE OR REPLACE FUNCTION embedsidecar.comment_line(words text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$ SELECT ' -- ' || regexp_replace(comment_line.words, '\s+', ' ', 'g') $$;
COMMENT ON FUNCTION embedsidecar.comment_line IS 'A text as a comment behind a statement to paste.';

-- Dependents follow the object, not its name. The switch recreates views and SQL-body functions of the schema's owner
-- (remake), so that their text then means the new object. Everything else is for the owner.
CREATE OR REPLACE FUNCTION embedsidecar.generation_ties(live integer, other integer)
RETURNS TABLE (what text, remake text, sql text, view oid)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    a record;
    b record;
    whole boolean; -- the whole table is exchanged, not a column
    -- The owners whose objects this role recreates. The server runs code while it parses, such as a domain's
    -- constraints for an array literal. So they are roles that this one can act as and that have all of its rights.
    friends oid[] := ARRAY(SELECT r.oid FROM pg_roles AS r
        WHERE pg_has_role(current_user, r.oid, 'USAGE') AND (r.rolsuper OR pg_has_role(r.oid, current_user,
            CASE WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER'
                ELSE 'USAGE, SET, MEMBER WITH ADMIN OPTION' END)));
BEGIN
    SELECT * INTO STRICT a FROM embedsidecar.destination_of(generation_ties.live);
    SELECT * INTO STRICT b FROM embedsidecar.destination_of(generation_ties.other);
    whole := (SELECT p.destination_column IS NULL FROM embedsidecar.pipeline AS p
              WHERE p.pipeline_id = generation_ties.live);
    RETURN QUERY
    WITH ties AS (
        SELECT DISTINCT d.classid, d.objid FROM pg_depend AS d
        WHERE  d.refclassid = 'pg_class'::regclass AND d.refobjid = a.relation
               AND (whole OR d.refobjsubid = a.attnum) AND d.deptype IN ('n', 'a')
    ), views AS (
        SELECT DISTINCT c.oid, c.relkind, c.relowner, format('%I.%I', n.nspname, c.relname) AS name, c.reloptions
        FROM   ties AS t JOIN pg_rewrite AS r ON t.classid = 'pg_rewrite'::regclass AND r.oid = t.objid
               JOIN pg_class AS c ON c.oid = r.ev_class JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE  c.oid <> a.relation
    )
    SELECT CASE v.relkind WHEN 'v' THEN 'view ' WHEN 'm' THEN 'materialized view ' ELSE 'rule of ' END || v.name,
           CASE WHEN v.relkind = 'v' AND v.relowner = ANY (friends)
                    AND (a.type = b.type OR NOT EXISTS (SELECT FROM pg_attribute AS c WHERE c.attrelid = v.oid
                        AND c.attnum > 0 AND format_type(c.atttypid, c.atttypmod) = a.type)) THEN
               'CREATE OR REPLACE VIEW ' || v.name
               || coalesce(' WITH (' || array_to_string(v.reloptions, ', ') || ')', '')
               || ' AS ' || btrim(pg_get_viewdef(v.oid), '; ') END,
           CASE v.relkind
               WHEN 'v' THEN 'DROP VIEW ' || v.name || ';' || embedsidecar.comment_line('after the switch: CREATE VIEW '
                   || v.name || ' AS ' || btrim(pg_get_viewdef(v.oid), '; '))
               WHEN 'm' THEN 'DROP MATERIALIZED VIEW ' || v.name || ';'
                   || embedsidecar.comment_line('after the switch: CREATE MATERIALIZED VIEW ' || v.name || ' AS '
                   || btrim(pg_get_viewdef(v.oid), '; '))
               ELSE embedsidecar.comment_line('drop the rule of ' || v.name
                   || ', and create it again after the switch') END, v.oid
    FROM   views AS v
    UNION ALL
    SELECT 'function ' || p.oid::regprocedure::text,
           CASE WHEN p.proowner = ANY (friends) THEN pg_get_functiondef(p.oid) END,
           'DROP FUNCTION ' || p.oid::regprocedure::text || '; -- and create it again after the switch', NULL
    FROM   ties AS t JOIN pg_proc AS p ON t.classid = 'pg_proc'::regclass AND p.oid = t.objid
    UNION ALL
    SELECT 'generated column or default ' || format('%I', g.attname), NULL,
           format('ALTER TABLE %s DROP COLUMN %I; -- and create it again after the switch', a.quoted, g.attname), NULL
    FROM   ties AS t LEFT JOIN pg_attrdef AS f ON t.classid = 'pg_attrdef'::regclass AND f.oid = t.objid
           JOIN pg_attribute AS g ON g.attrelid = a.relation AND g.attnum = f.adnum
    WHERE  NOT whole
    UNION ALL
    SELECT 'trigger ' || quote_ident(g.tgname), NULL,
           format('DROP TRIGGER %I ON %s;', g.tgname, a.quoted)
               || embedsidecar.comment_line('after the switch: ' || pg_get_triggerdef(g.oid)), NULL
    FROM   pg_trigger AS g
    WHERE  g.tgrelid = a.relation AND NOT g.tgisinternal
           AND (whole OR a.attnum = ANY (g.tgattr::smallint[])
                OR EXISTS (SELECT FROM ties AS t WHERE t.classid = 'pg_trigger'::regclass AND t.objid = g.oid))
    UNION ALL
    SELECT 'constraint ' || quote_ident(k.conname) || ' of ' || k.conrelid::regclass::text, NULL,
           CASE WHEN k.conrelid = a.relation AND whole
                THEN format('ALTER TABLE %s ADD %s;', b.quoted, pg_get_constraintdef(k.oid))
                ELSE format('ALTER TABLE %s DROP CONSTRAINT %I;', k.conrelid::regclass, k.conname)
                    || embedsidecar.comment_line('after the switch: ADD ' || pg_get_constraintdef(k.oid)) END, NULL
    FROM   pg_constraint AS k
    WHERE  k.contype <> 'p' AND k.contype <> 'n' AND (
               whole AND k.conrelid = a.relation AND NOT EXISTS (SELECT FROM pg_constraint AS same
                   WHERE same.conrelid = b.relation AND pg_get_constraintdef(same.oid) = pg_get_constraintdef(k.oid))
               OR whole AND k.contype = 'f' AND k.confrelid = a.relation
               OR NOT whole AND k.conrelid = a.relation AND a.attnum = ANY (k.conkey))
    UNION ALL
    SELECT 'policy ' || quote_ident(y.polname), NULL,
           CASE WHEN whole THEN format('CREATE POLICY %I ON %s AS %s FOR %s TO %s%s%s;', y.polname, b.quoted,
               CASE WHEN y.polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END,
               CASE y.polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE'
                   WHEN 'd' THEN 'DELETE' ELSE 'ALL' END,
               (SELECT string_agg(CASE r.role WHEN 0 THEN 'PUBLIC' ELSE r.role::regrole::text END, ', ')
                FROM unnest(y.polroles) AS r (role)),
               ' USING (' || pg_get_expr(y.polqual, y.polrelid) || ')',
               ' WITH CHECK (' || pg_get_expr(y.polwithcheck, y.polrelid) || ')')
           ELSE format('DROP POLICY %I ON %s; -- and create it again after the switch', y.polname, a.quoted) END, NULL
    FROM   pg_policy AS y
    WHERE  whole AND y.polrelid = a.relation AND NOT EXISTS (SELECT FROM pg_policy AS same
               WHERE same.polrelid = b.relation AND (same.polcmd, same.polpermissive, same.polroles)
                   = (y.polcmd, y.polpermissive, y.polroles)
                   AND pg_get_expr(same.polqual, same.polrelid)
                       IS NOT DISTINCT FROM pg_get_expr(y.polqual, y.polrelid)
                   AND pg_get_expr(same.polwithcheck, same.polrelid)
                       IS NOT DISTINCT FROM pg_get_expr(y.polwithcheck, y.polrelid))
           OR NOT whole AND EXISTS (SELECT FROM ties AS t WHERE t.classid = 'pg_policy'::regclass AND t.objid = y.oid)
    UNION ALL
    SELECT 'row-level security', NULL, (SELECT string_agg(format('ALTER TABLE %s %s ROW LEVEL SECURITY;', b.quoted, w),
               ' ') FROM unnest(ARRAY[CASE WHEN f.relrowsecurity THEN 'ENABLE' ELSE 'DISABLE' END,
                   CASE WHEN f.relforcerowsecurity THEN 'FORCE' ELSE 'NO FORCE' END]) AS w), NULL
    FROM   pg_class AS f JOIN pg_class AS g ON f.oid = a.relation AND g.oid = b.relation
    WHERE  (f.relrowsecurity, f.relforcerowsecurity) <> (g.relrowsecurity, g.relforcerowsecurity)
    UNION ALL
    SELECT 'publication ' || quote_ident(u.pubname), NULL,
           CASE WHEN whole THEN format('ALTER PUBLICATION %I ADD TABLE %s;', u.pubname, b.quoted)
                ELSE embedsidecar.comment_line(format('have the columns of %s in publication %I name %I, too', r.name,
                    u.pubname, b.column_name)) END, NULL
    FROM  (WITH RECURSIVE tree AS ( -- partitions have their own lists and numbers
               SELECT a.relation AS relid
               UNION ALL
               SELECT h.inhrelid FROM tree AS t JOIN pg_inherits AS h ON h.inhparent = t.relid AND NOT whole)
           SELECT e.prpubid, format('%I.%I', n.nspname, c.relname) AS name,
                  string_to_array(translate(to_jsonb(e) ->> 'prattrs', '[],', ''), ' ')::smallint[] AS numbers,
                  (SELECT f.attnum FROM pg_attribute AS f
                   WHERE f.attrelid = t.relid AND f.attname = a.column_name) AS before,
                  (SELECT f.attnum FROM pg_attribute AS f
                   WHERE f.attrelid = t.relid AND f.attname = b.column_name) AS after
           FROM   tree AS t JOIN pg_publication_rel AS e ON e.prrelid = t.relid
                  JOIN pg_class AS c ON c.oid = t.relid JOIN pg_namespace AS n ON n.oid = c.relnamespace) AS r
          JOIN pg_publication AS u ON u.oid = r.prpubid
    WHERE  CASE WHEN whole THEN NOT EXISTS (SELECT FROM pg_publication_rel AS s
                        WHERE s.prpubid = r.prpubid AND s.prrelid = b.relation)
               ELSE r.before = ANY (r.numbers) AND NOT r.after = ANY (r.numbers) END
    UNION ALL
    SELECT 'column ' || quote_ident(c.attname), NULL,
           format('ALTER TABLE %s ADD COLUMN %I %s;', b.quoted, c.attname, format_type(c.atttypid, c.atttypmod)), NULL
    FROM   pg_attribute AS c
    WHERE  whole AND c.attrelid = a.relation AND c.attnum > 0 AND NOT c.attisdropped
           AND NOT EXISTS (SELECT FROM pg_attribute AS s WHERE s.attrelid = b.relation AND s.attname = c.attname
               AND NOT s.attisdropped)
           -- whole texts need no chunk columns, unless a view shows them
           AND (c.attname NOT IN ('start_byte', 'end_byte', 'context', 'chunk_text')
                OR EXISTS (SELECT FROM pg_depend AS d WHERE d.refclassid = 'pg_class'::regclass
                    AND d.refobjid = a.relation AND d.refobjsubid = c.attnum
                    AND d.classid IN ('pg_rewrite'::regclass, 'pg_proc'::regclass)))
    ORDER BY 1;
END $$;
COMMENT ON FUNCTION embedsidecar.generation_ties IS
    'What depends on the vectors that serve, and would still mean them after a switch: remake is what the switch does '
    'about it, sql what the owner can do if remake is NULL.';

-- The grants of one destination become those of the other, with the rights of the grantor: the owner.
CREATE OR REPLACE FUNCTION embedsidecar.grants_sql(live integer, other integer) RETURNS text[]
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    a      record;
    b      record;
    g      record;
    hidden boolean;
    list   text[] := '{}';
BEGIN
    SELECT * INTO STRICT a FROM embedsidecar.destination_of(grants_sql.live);
    SELECT * INTO STRICT b FROM embedsidecar.destination_of(grants_sql.other);
    SELECT f.relrowsecurity AND NOT n.relrowsecurity INTO hidden FROM pg_class AS f, pg_class AS n
    WHERE  f.oid = a.relation AND n.oid = b.relation;
    FOR g IN
        WITH acl AS (
            SELECT 1 AS of, ''::name AS at, x.* FROM pg_class AS c CROSS JOIN aclexplode(c.relacl) AS x
            WHERE  c.oid = a.relation AND a.relation <> b.relation AND x.grantee <> c.relowner
            UNION ALL
            SELECT 2, '', x.* FROM pg_class AS c CROSS JOIN aclexplode(c.relacl) AS x
            WHERE  c.oid = b.relation AND a.relation <> b.relation AND x.grantee <> c.relowner
            UNION ALL
            SELECT 1, CASE t.attnum WHEN a.attnum THEN b.column_name ELSE t.attname END, x.*
            FROM   pg_attribute AS t CROSS JOIN aclexplode(t.attacl) AS x
            WHERE  t.attrelid = a.relation AND NOT t.attisdropped
                   AND (t.attnum = a.attnum OR a.relation <> b.relation)
            UNION ALL
            SELECT 2, t.attname, x.* FROM pg_attribute AS t CROSS JOIN aclexplode(t.attacl) AS x
            WHERE  t.attrelid = b.relation AND NOT t.attisdropped
                   AND (t.attnum = b.attnum OR a.relation <> b.relation)
        )
        SELECT h.at, h.grantee, h.privilege_type, bool_or(h.of = 1) AS wanted, bool_or(h.of = 2) AS there,
            bool_or(h.of = 1 AND h.is_grantable) AS grantable
        FROM   acl AS h
        WHERE  h.grantee = 0 OR EXISTS (SELECT FROM pg_roles AS r WHERE r.oid = h.grantee)
        GROUP  BY 1, 2, 3 HAVING count(DISTINCT h.of) = 1
    LOOP
        -- The owner copies policies before the switch: until then only roles that write see all rows.
        CONTINUE WHEN hidden AND g.wanted AND NOT EXISTS (SELECT FROM pg_class AS c CROSS JOIN aclexplode(c.relacl) AS x
            WHERE c.oid = a.relation AND x.grantee = g.grantee AND x.privilege_type = 'INSERT');
        list := list || format('%s %s%s ON %s %s %s%s',
            CASE WHEN g.wanted THEN 'GRANT' ELSE 'REVOKE' END, g.privilege_type,
            CASE WHEN g.at <> '' THEN format(' (%I)', g.at) ELSE '' END, b.quoted,
            CASE WHEN g.wanted THEN 'TO' ELSE 'FROM' END,
            CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END,
            CASE WHEN g.wanted AND g.grantable THEN ' WITH GRANT OPTION' ELSE '' END);
    END LOOP;
    RETURN list;
END $$;
COMMENT ON FUNCTION embedsidecar.grants_sql IS
    'The statements that give the destination of another generation the grants of the one that serves, and revoke '
    'others.';

CREATE OR REPLACE FUNCTION embedsidecar.run_all(statements text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    statement text;
BEGIN
    FOREACH statement IN ARRAY statements LOOP
        EXECUTE statement;
    END LOOP;
END $$;
COMMENT ON FUNCTION embedsidecar.run_all IS 'For model_switch and model_change: runs our statements.';

CREATE OR REPLACE FUNCTION embedsidecar.carry_grants(live integer, other integer) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT embedsidecar.run_all(embedsidecar.grants_sql(live, other))
$$;
COMMENT ON FUNCTION embedsidecar.carry_grants IS
    'Gives the destination of another generation the grants of the one that serves, and revokes others.';

CREATE OR REPLACE FUNCTION embedsidecar.carry_storage(live integer, other integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    a record;
    b record;
    s record;
BEGIN
    SELECT * INTO STRICT a FROM embedsidecar.destination_of(carry_storage.live);
    SELECT * INTO STRICT b FROM embedsidecar.destination_of(carry_storage.other);
    SELECT f.attstorage AS before, g.attstorage AS now INTO STRICT s FROM pg_attribute AS f, pg_attribute AS g
    WHERE  f.attrelid = a.relation AND f.attnum = a.attnum AND g.attrelid = b.relation AND g.attnum = b.attnum;
    IF s.before <> s.now THEN
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET STORAGE %s', b.quoted, b.column_name,
            CASE s.before WHEN 'p' THEN 'PLAIN' WHEN 'e' THEN 'EXTERNAL' WHEN 'm' THEN 'MAIN' ELSE 'EXTENDED' END);
    END IF;
    IF a.relation <> b.relation THEN
        FOR s IN SELECT o.name FROM pg_class AS c CROSS JOIN unnest(c.reloptions) AS o (name)
                 WHERE c.oid = a.relation LOOP
            EXECUTE format('ALTER TABLE %s SET (%s)', b.quoted, s.name);
        END LOOP;
        FOR s IN SELECT f.attname, col_description(f.attrelid, f.attnum) AS said FROM pg_attribute AS f
                 WHERE f.attrelid = a.relation AND f.attnum > 0 AND NOT f.attisdropped
                       AND col_description(f.attrelid, f.attnum) IS NOT NULL
                       AND EXISTS (SELECT FROM pg_attribute AS g WHERE g.attrelid = b.relation
                           AND g.attname = f.attname AND NOT g.attisdropped) LOOP
            EXECUTE format('COMMENT ON COLUMN %s.%I IS %L', b.quoted, s.attname, s.said);
        END LOOP;
    END IF;
END $$;
COMMENT ON FUNCTION embedsidecar.carry_storage IS
    'Gives the empty destination of a next generation the storage and the comments of the other.';

-- The sessions that use tables which could not be locked.
CREATE OR REPLACE FUNCTION embedsidecar.users_of(relations oid[]) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT string_agg(embedsidecar.session_words(s.pid, '', s.datname, s.usename, s.application_name, s.state,
           extract(epoch FROM clock_timestamp() - s.xact_start)), '; ')
FROM   pg_stat_activity AS s
WHERE  s.pid <> pg_backend_pid() AND s.datname = current_database()
       AND s.pid IN (SELECT l.pid FROM pg_locks AS l WHERE l.relation = ANY (users_of.relations) AND l.granted
           AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
$$;
COMMENT ON FUNCTION embedsidecar.users_of IS 'The sessions that hold locks on tables.';

CREATE OR REPLACE FUNCTION embedsidecar.no_moment(action text, relations oid[], until timestamptz) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF clock_timestamp() >= until THEN
        RAISE EXCEPTION '%: could not obtain locks: the tables are in use', action
            USING ERRCODE = 'object_in_use',
                  DETAIL = coalesce('They are held by ' || embedsidecar.users_of(relations) || '.', ''),
                  HINT = 'nothing was changed: try again when these sessions have ended';
    END IF;
END $$;
COMMENT ON FUNCTION embedsidecar.no_moment IS 'Raises an error if tables could not be locked until a time.';

-- A free name, derived from another: docs_embedding__previous.
CREATE OR REPLACE FUNCTION embedsidecar.beside_name(base text, suffix text, relation oid, whole boolean) RETURNS name
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found text;
BEGIN
    FOR i IN 0..99 LOOP
        found := suffix || CASE i WHEN 0 THEN '' ELSE i::text END;
        found := left(base, 63 - length(found)) || found;
        IF (CASE WHEN whole THEN NOT EXISTS (SELECT FROM pg_class AS c WHERE c.relname = found AND c.relnamespace
                        = (SELECT r.relnamespace FROM pg_class AS r WHERE r.oid = relation))
                ELSE NOT EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = relation AND a.attname = found) END)
        THEN
            RETURN found;
        END IF;
    END LOOP;
    RAISE EXCEPTION 'no name like "%" is free', base || suffix USING ERRCODE = 'duplicate_table';
END $$;
COMMENT ON FUNCTION embedsidecar.beside_name IS 'A free name for a destination that does not serve.';

-- The statements of a switch. They are built before anything is locked, and printed for the owner if the role may not
-- rename. Indexes are renamed after their table, if we or the server chose their names.
CREATE OR REPLACE FUNCTION embedsidecar.swap_sql(live integer, other integer) RETURNS text[]
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    a     record;
    b     record;
    kept  name;
    whole boolean; -- the whole table is exchanged, not a column
    stem  text := '';
    word  text := (SELECT CASE WHEN p.served THEN '__next' ELSE '__previous' END FROM embedsidecar.pipeline AS p
                   WHERE p.pipeline_id = swap_sql.other);
BEGIN
    SELECT * INTO STRICT a FROM embedsidecar.destination_of(swap_sql.live);
    SELECT * INTO STRICT b FROM embedsidecar.destination_of(swap_sql.other);
    whole := a.relation <> b.relation;
    IF whole THEN
        kept := embedsidecar.beside_name(a.table_name, word, a.relation, true);
    ELSE
        kept := embedsidecar.beside_name(a.column_name, word, a.relation, false);
        stem := a.table_name || '_';
        a.table_name := a.column_name;
        b.table_name := b.column_name;
    END IF;
    RETURN embedsidecar.grants_sql(live, other)
        || CASE WHEN whole THEN ARRAY[format('ALTER TABLE %s RENAME TO %I', a.quoted, kept),
                format('ALTER TABLE %s RENAME TO %I', b.quoted, a.table_name)]
            ELSE ARRAY[format('ALTER TABLE %s RENAME COLUMN %I TO %I', a.quoted, a.column_name, kept),
                format('ALTER TABLE %s RENAME COLUMN %I TO %I', a.quoted, b.column_name, a.column_name)] END
        || ARRAY(
        WITH named AS (
            SELECT w.n, c.oid, s.nspname, c.relname, r.renamed,
                to_regclass(format('%I.%I', s.nspname, r.renamed)) AS there
            FROM  (VALUES (1, a.relation, a.attnum, stem || a.table_name, stem || kept),
                      (2, b.relation, b.attnum, stem || b.table_name, stem || a.table_name))
                      AS w (n, relation, attnum, before, after)
                  JOIN pg_index AS i ON i.indrelid = w.relation AND (whole OR w.attnum = ANY (i.indkey::smallint[]))
                  JOIN pg_class AS c ON c.oid = i.indexrelid AND starts_with(c.relname, w.before)
                  JOIN pg_namespace AS s ON s.oid = c.relnamespace
                  CROSS JOIN LATERAL (SELECT w.after || substr(c.relname, length(w.before) + 1) AS renamed) AS r
            WHERE  length(r.renamed) < 64)
        SELECT format('ALTER INDEX %I.%I RENAME TO %I', f.nspname, f.relname, f.renamed) FROM named AS f
        WHERE  f.there IS NULL OR f.n = 2 AND f.there IN (SELECT g.oid FROM named AS g
                                                          WHERE g.n = 1 AND g.there IS NULL)
        ORDER  BY f.n, f.oid)
        || ARRAY(SELECT t.remake FROM embedsidecar.generation_ties(live, other) AS t WHERE t.remake IS NOT NULL);
END $$;
COMMENT ON FUNCTION embedsidecar.swap_sql IS
    'The statements that exchange the names of two destinations, and recreate what depends on one of them.';

CREATE OR REPLACE FUNCTION embedsidecar.swap_seen(relations oid[]) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT string_agg(f.fact, ' ' ORDER BY f.fact) FROM (
    SELECT concat_ws(':', 'c', c.oid, c.xmin) FROM pg_class AS c WHERE c.oid = ANY (relations)
    UNION ALL
    SELECT concat_ws(':', 'a', a.attrelid, a.attnum, a.xmin) FROM pg_attribute AS a WHERE a.attrelid = ANY (relations)
    UNION ALL
    SELECT concat_ws(':', 'd', d.classid, d.objid, r.xmin, f.xmin)
    FROM   pg_depend AS d
           LEFT JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
           LEFT JOIN pg_proc AS f ON d.classid = 'pg_proc'::regclass AND f.oid = d.objid
    WHERE  d.refclassid = 'pg_class'::regclass AND d.refobjid = ANY (relations)) AS f (fact)
$$;
COMMENT ON FUNCTION embedsidecar.swap_seen IS
    'For a switch: a word that changes whenever the statements of swap_sql may change.';

-- Whether the owner of the tables has exchanged the names already, as requested: then the destination that is to serve
-- has the name that is recorded for the one that serves.
CREATE OR REPLACE FUNCTION embedsidecar.swapped_already(live integer, other integer) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT CASE WHEN p.destination_column IS NULL THEN b.table_name = p.destination_table AND b.relation <> a.relation
            ELSE b.column_name = p.destination_column END
FROM   embedsidecar.pipeline AS p, embedsidecar.destination_of(swapped_already.live) AS a,
       embedsidecar.destination_of(swapped_already.other) AS b
WHERE  p.pipeline_id = swapped_already.live
$$;
COMMENT ON FUNCTION embedsidecar.swapped_already IS 'Whether the names of two destinations were exchanged by hand.';

CREATE OR REPLACE FUNCTION embedsidecar.exchange_rows(live integer, other integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    l      embedsidecar.pipeline;
    o      embedsidecar.pipeline;
    a      record;
    b      record;
    latest integer;
BEGIN
    SELECT p.* INTO STRICT l FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = exchange_rows.live;
    SELECT p.* INTO STRICT o FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = exchange_rows.other;
    SELECT * INTO STRICT a FROM embedsidecar.destination_of(exchange_rows.live);
    SELECT * INTO STRICT b FROM embedsidecar.destination_of(exchange_rows.other);
    latest := greatest(l.definition_version, o.definition_version) + 1;
    UPDATE embedsidecar.pipeline AS p SET name = o.name || ' ' || gen_random_uuid(), beside = NULL
    WHERE  p.pipeline_id = o.pipeline_id;
    UPDATE embedsidecar.pipeline AS p
    SET    name = o.name, beside = o.pipeline_id, served = NOT o.served, switches = p.switches + 1, wish = NULL,
           destination_column = CASE WHEN l.destination_column IS NOT NULL THEN a.column_name END,
           destination_table = CASE WHEN l.destination_column IS NULL THEN a.table_name END
    WHERE  p.pipeline_id = l.pipeline_id;
    -- Configurations with either model are known from now on: the one with the other model is an older definition.
    UPDATE embedsidecar.pipeline AS p
    SET    name = l.name, served = true, switches = p.switches + 1,
           destination_column = CASE WHEN o.destination_column IS NOT NULL THEN b.column_name END,
           destination_table = CASE WHEN o.destination_column IS NULL THEN b.table_name END,
           lane = l.lane, priority_expression = l.priority_expression, enabled = l.enabled,
           active_hours = l.active_hours, active_minutes = l.active_minutes,
           active_zone = l.active_zone, open_until = l.open_until, budget = l.budget,
           max_attempts = l.max_attempts, labels = l.labels, batch = l.batch, origin = l.origin,
           definition_version = latest,
           definitions = l.definitions || o.definitions || coalesce((SELECT jsonb_object_agg(d.key, latest)
               FROM jsonb_each_text(o.definitions) AS d WHERE d.value::integer = o.definition_version), '{}')
    WHERE  p.pipeline_id = o.pipeline_id;
    UPDATE embedsidecar.pipeline AS p
    SET    column_numbers = coalesce((SELECT jsonb_object_agg(t.attname, t.attnum) FROM pg_attribute AS t
               WHERE t.attrelid = p.table_oid AND t.attnum > 0 AND NOT t.attisdropped), '{}')
    WHERE  p.pipeline_id IN (l.pipeline_id, o.pipeline_id);
    -- makes the streamer load it at once
    PERFORM pg_notify('embedsidecar_waiting', '') WHERE pg_notification_queue_usage() < 0.5;
END $$;
COMMENT ON FUNCTION embedsidecar.exchange_rows IS
    'After swap_sql: exchanges name, beside and served of the two rows, and records the new names of the destinations.';

CREATE OR REPLACE FUNCTION embedsidecar.switch_generation(action text, pipeline text, next boolean, force boolean,
    patience interval, dry_run boolean, said_by text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    id     integer := embedsidecar.pipeline_meant(switch_generation.pipeline);
    l      embedsidecar.pipeline;
    o      embedsidecar.pipeline;
    a      record;
    b      record;
    lacks  text[];
    ties   record;
    entry  embedsidecar.audit_log;
    done   text := CASE WHEN switch_generation.next THEN 'switched' ELSE 'rolled_back' END;
    ready  boolean;
    until  timestamptz;
    before text := current_setting('lock_timeout');
    relations  oid[];
    statements text[];
    seen       text;
    tries      integer := 0;
BEGIN
    SELECT p.* INTO STRICT l FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = id;
    IF l.beside IS NOT NULL THEN
        RAISE EXCEPTION '%: "%" is a generation that is not in use: name its pipeline', switch_generation.action, l.name
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    IF switch_generation.patience IS NULL OR switch_generation.patience NOT BETWEEN '0' AND '10 minutes' THEN
        RAISE EXCEPTION '%: patience: expected 0 to 10 minutes, not %', switch_generation.action,
            coalesce(switch_generation.patience::text, 'NULL') USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT p.* INTO o FROM embedsidecar.pipeline AS p WHERE p.beside = id;
    IF o.pipeline_id IS NULL OR o.served = switch_generation.next THEN
        IF o.pipeline_id IS NOT NULL AND o.switches > 0 THEN -- already done by an earlier caller
            RETURN CASE WHEN switch_generation.next THEN 'already_switched' ELSE 'already_rolled_back' END;
        END IF;
        RAISE EXCEPTION '%: pipeline "%" has no %', switch_generation.action, l.name,
            CASE WHEN switch_generation.next THEN 'next generation'
                ELSE 'previous generation: it was dropped, or there never was one' END
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'embedsidecar model change ' || embedsidecar.shell_word(l.name) || ' --to MODEL creates one';
    END IF;
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION '%: a % transaction does not see concurrent changes', switch_generation.action,
            upper(current_setting('transaction_isolation'))
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'call it in READ COMMITTED';
    END IF;
    SELECT * INTO a FROM embedsidecar.destination_of(id);
    SELECT * INTO b FROM embedsidecar.destination_of(o.pipeline_id);
    IF a.relation IS NULL OR b.relation IS NULL THEN
        RAISE EXCEPTION '%: the % is gone', switch_generation.action, CASE WHEN a.relation IS NULL
            THEN 'destination in use' ELSE 'destination of the other generation' END
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = CASE WHEN a.relation IS NULL THEN 'embedsidecar init creates it again'
                      ELSE 'embedsidecar model drop-old ' || embedsidecar.shell_word(l.name)
                          || ' removes that generation' END;
    END IF;
    lacks := embedsidecar.generation_lacks(id, o.pipeline_id, switch_generation.force);
    IF cardinality(lacks) > 0 THEN
        RAISE EXCEPTION '%: the other generation of "%" is not ready: %', switch_generation.action, l.name,
            array_to_string(lacks, '; ') USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'embedsidecar model status ' || embedsidecar.shell_word(l.name) || ' shows its progress';
    END IF;
    ready := embedsidecar.swapped_already(id, o.pipeline_id);
    IF NOT ready THEN
        BEGIN -- The server locks what views read while it prints them: only until this is undone.
            SELECT string_agg(t.what, ', ') AS what, string_agg(t.sql, E'\n') AS sql INTO ties
            FROM   embedsidecar.generation_ties(id, o.pipeline_id) AS t WHERE t.remake IS NULL;
            RAISE SQLSTATE 'ES000';
        EXCEPTION WHEN SQLSTATE 'ES000' THEN
            NULL;
        END;
        IF ties.what IS NOT NULL THEN
            RAISE EXCEPTION '%: these would still use the old vectors: %', switch_generation.action, ties.what
                USING ERRCODE = 'dependent_objects_still_exist', HINT = E'first:\n' || ties.sql;
        END IF;
        IF NOT (SELECT bool_and(pg_has_role(current_user, c.relowner, 'USAGE')) FROM pg_class AS c
                WHERE c.oid IN (a.relation, b.relation)) THEN
            RAISE EXCEPTION '%: role "%" may not rename %', switch_generation.action, current_user,
                CASE WHEN a.relation = b.relation THEN a.quoted ELSE a.quoted || ' and ' || b.quoted END
                USING ERRCODE = 'insufficient_privilege',
                      HINT = format('the owner runs: BEGIN; SET LOCAL lock_timeout = ''50ms''; %s; SELECT '
                          'embedsidecar.%s(%L); COMMIT;',
                          array_to_string(embedsidecar.swap_sql(id, o.pipeline_id), '; '), switch_generation.action,
                          l.name);
        END IF;
    END IF;
    entry := embedsidecar.begin_action(switch_generation.action, id, jsonb_build_object('from', l.model, 'to', o.model,
        'force', nullif(switch_generation.force, false)), switch_generation.said_by, switch_generation.dry_run);
    IF switch_generation.dry_run THEN
        RETURN 'would_be_' || done;
    END IF;
    -- Locks are tried for 20 ms, after ten attempts for 50 ms, and given up, so that no session queues longer behind
    -- them. Views are locked first, as by their readers, then tables that are not searched, last those that
    -- applications use. What can be prepared is prepared before.
    PERFORM embedsidecar.end_action(entry.audit_id, done, 1);
    until := clock_timestamp() + switch_generation.patience;
    LOOP
        BEGIN -- as above: sessions that wait for these tables must not wait for the next try
            relations := ARRAY(SELECT t.view FROM embedsidecar.generation_ties(id, o.pipeline_id) AS t
                               WHERE t.remake IS NOT NULL AND t.view IS NOT NULL) || b.relation || a.relation;
            seen := embedsidecar.swap_seen(relations);
            statements := CASE WHEN embedsidecar.swapped_already(id, o.pipeline_id) THEN '{}'
                ELSE embedsidecar.swap_sql(id, o.pipeline_id) END;
            RAISE SQLSTATE 'ES000';
        EXCEPTION WHEN SQLSTATE 'ES000' THEN
            NULL;
        END;
        BEGIN
            PERFORM set_config('lock_timeout', CASE WHEN tries < 10 THEN '20ms' ELSE '50ms' END, true);
            PERFORM FROM embedsidecar.pipeline AS p WHERE p.pipeline_id IN (id, o.pipeline_id)
            ORDER BY p.pipeline_id FOR UPDATE;
            -- Another caller was first.
            IF NOT EXISTS (SELECT FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = o.pipeline_id
                           AND p.beside = id AND p.switches = o.switches AND p.served = o.served) THEN
                done := 'already_' || done;
                EXIT;
            END IF;
            PERFORM embedsidecar.move_job('model_change', id, done, NULL, true); -- with force, before it was complete
            BEGIN -- a rehearsal: a new session plans these statements now, not while it locks the tables
                PERFORM embedsidecar.exchange_rows(id, o.pipeline_id);
                RAISE SQLSTATE 'ES000';
            EXCEPTION WHEN SQLSTATE 'ES000' THEN
                NULL;
            END;
            EXECUTE (SELECT string_agg(format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', r.oid::regclass), '; '
                ORDER BY r.n) FROM unnest(relations) WITH ORDINALITY AS r (oid, n));
            IF seen IS DISTINCT FROM embedsidecar.swap_seen(relations) THEN
                RAISE lock_not_available; -- the tables have changed since
            END IF;
            PERFORM embedsidecar.run_all(statements);
            PERFORM embedsidecar.exchange_rows(id, o.pipeline_id);
            PERFORM set_config('lock_timeout', before, true);
            RETURN done;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            PERFORM embedsidecar.no_moment(switch_generation.action, relations, until);
        END;
        tries := tries + 1;
        PERFORM pg_sleep(0.1 + 0.3 * random());
    END LOOP;
    PERFORM set_config('lock_timeout', before, true);
    UPDATE embedsidecar.audit_log AS u SET changed = 0 WHERE u.audit_id = entry.audit_id;
    RETURN embedsidecar.end_action(entry.audit_id, done, 0);
END $$;
COMMENT ON FUNCTION embedsidecar.switch_generation IS 'For model_switch and model_rollback.';

CREATE OR REPLACE FUNCTION embedsidecar.model_switch(pipeline text, force boolean DEFAULT false,
    patience interval DEFAULT '30 s', dry_run boolean DEFAULT false, said_by text DEFAULT NULL) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT embedsidecar.switch_generation('model_switch', pipeline, true, force, patience, dry_run, said_by)
$$;
COMMENT ON FUNCTION embedsidecar.model_switch IS
    'Makes the next generation of a pipeline serve, in this transaction, once it is complete: its vectors get the '
    'name of those that served, and its model embeds queries. The other generation is kept up to date until '
    'model_drop_old. force: even if rows are stale or failed, or an index is missing. Returns switched, '
    'already_switched or, with dry_run, would_be_switched.';

CREATE OR REPLACE FUNCTION embedsidecar.model_rollback(pipeline text, force boolean DEFAULT false,
    patience interval DEFAULT '30 s', dry_run boolean DEFAULT false, said_by text DEFAULT NULL) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT embedsidecar.switch_generation('model_rollback', pipeline, false, force, patience, dry_run, said_by)
$$;
COMMENT ON FUNCTION embedsidecar.model_rollback IS
    'Makes the previous generation of a pipeline serve again, the reverse of model_switch. Returns rolled_back, '
    'already_rolled_back or, with dry_run, would_be_rolled_back.';

CREATE OR REPLACE FUNCTION embedsidecar.model_drop_old(pipeline text, patience interval DEFAULT '30 s',
    dry_run boolean DEFAULT false, said_by text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    id    integer := embedsidecar.pipeline_meant(model_drop_old.pipeline);
    o     embedsidecar.pipeline;
    b     record;
    what  text;
    entry embedsidecar.audit_log;
    done  text;
    until timestamptz;
    before text := current_setting('lock_timeout');
BEGIN
    SELECT p.* INTO o FROM embedsidecar.pipeline AS p WHERE p.beside = id;
    entry := embedsidecar.begin_action('model_drop_old', id, jsonb_build_object('model', o.model),
        model_drop_old.said_by, model_drop_old.dry_run);
    IF o.pipeline_id IS NULL THEN
        RETURN CASE WHEN model_drop_old.dry_run THEN 'nothing_to_drop'
            ELSE embedsidecar.end_action(entry.audit_id, 'nothing_to_drop', 0) END;
    END IF;
    done := CASE WHEN o.served THEN 'dropped_previous' ELSE 'dropped_next' END;
    SELECT * INTO b FROM embedsidecar.destination_of(o.pipeline_id);
    IF b.relation IS NOT NULL THEN
        what := CASE WHEN o.destination_column IS NULL THEN format('DROP TABLE %s', b.quoted)
            ELSE format('ALTER TABLE %s DROP COLUMN %I', b.quoted, b.column_name) END;
        IF NOT (SELECT pg_has_role(current_user, c.relowner, 'USAGE') FROM pg_class AS c WHERE c.oid = b.relation) THEN
            RAISE EXCEPTION 'model_drop_old: role "%" may not drop the vectors in %', current_user, b.quoted
                USING ERRCODE = 'insufficient_privilege',
                      HINT = format('the owner runs: BEGIN; SET LOCAL lock_timeout = ''50ms''; %s; SELECT '
                          'embedsidecar.model_drop_old(%L); COMMIT;', what, model_drop_old.pipeline);
        END IF;
    END IF;
    IF model_drop_old.dry_run THEN
        RETURN 'would_be_' || done;
    END IF;
    until := clock_timestamp() + model_drop_old.patience;
    LOOP
        BEGIN
            PERFORM set_config('lock_timeout', '50ms', true);
            IF b.relation IS NOT NULL THEN
                EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', b.relation::regclass);
            END IF;
            -- The present row that does not serve: a switch may have come first.
            PERFORM FROM embedsidecar.pipeline AS p
            WHERE  p.pipeline_id = o.pipeline_id AND p.beside = id AND p.switches = o.switches FOR UPDATE;
            IF NOT FOUND THEN
                RAISE EXCEPTION 'model_drop_old: the generations of "%" were switched meanwhile',
                    model_drop_old.pipeline USING ERRCODE = 'object_not_in_prerequisite_state',
                    HINT = 'check which generation is in use now, then try again';
            END IF;
            IF b.relation IS NOT NULL THEN
                PERFORM embedsidecar.unpublish_column(b.relation, b.attnum)
                WHERE   o.destination_column IS NOT NULL;
                EXECUTE what;
            END IF;
            -- A sidecar deletes tasks and ledger later, in portions.
            DELETE FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = o.pipeline_id;
            PERFORM pg_notify('embedsidecar_waiting', '') WHERE pg_notification_queue_usage() < 0.5;
            PERFORM set_config('lock_timeout', before, true);
            EXIT;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            PERFORM embedsidecar.no_moment('model_drop_old', ARRAY[b.relation], until);
        END;
        PERFORM pg_sleep(0.1 + 0.3 * random());
    END LOOP;
    PERFORM embedsidecar.move_job('model_change', id, done, NULL, true); -- before it was complete
    RETURN embedsidecar.end_action(entry.audit_id, done, 1);
END $$;
COMMENT ON FUNCTION embedsidecar.model_drop_old IS
    'Removes the generation of a pipeline that does not serve, with its vectors; this cannot be undone. Returns '
    'dropped_previous, dropped_next, nothing_to_drop or, with dry_run, would_be_ and that.';

CREATE OR REPLACE FUNCTION embedsidecar.unpublish_column(relation oid, attnum smallint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    p record;
BEGIN
    FOR p IN WITH RECURSIVE tree AS ( -- partitions have their own lists and numbers
                 SELECT unpublish_column.relation AS relid
                 UNION ALL
                 SELECT h.inhrelid FROM tree AS t JOIN pg_inherits AS h ON h.inhparent = t.relid)
             SELECT u.pubname, r.prrelid::regclass AS name,
                    (SELECT string_agg(quote_ident(a.attname), ', ') FROM pg_attribute AS a
                     WHERE  a.attrelid = r.prrelid AND NOT a.attisdropped AND a.attnum <> o.attnum
                            AND a.attnum = ANY (l.numbers)) AS rest,
                    (SELECT ' WHERE (' || (to_jsonb(v) ->> 'rowfilter') || ')' -- from PostgreSQL 15 on, like the list
                     FROM   pg_publication_tables AS v JOIN pg_class AS c ON c.relname = v.tablename
                            JOIN pg_namespace AS n ON n.oid = c.relnamespace AND n.nspname = v.schemaname
                     WHERE  c.oid = r.prrelid AND v.pubname = u.pubname) AS filter
             FROM   tree AS t JOIN pg_publication_rel AS r ON r.prrelid = t.relid
                    JOIN pg_publication AS u ON u.oid = r.prpubid
                    JOIN pg_attribute AS d ON d.attrelid = unpublish_column.relation
                        AND d.attnum = unpublish_column.attnum
                    JOIN pg_attribute AS o ON o.attrelid = r.prrelid AND o.attname = d.attname
                    CROSS JOIN LATERAL (SELECT string_to_array(translate(to_jsonb(r) ->> 'prattrs', '[],', ''),
                        ' ')::smallint[]) AS l (numbers) -- [1, 2]
             WHERE  o.attnum = ANY (l.numbers)
    LOOP
        EXECUTE format('ALTER PUBLICATION %I DROP TABLE ONLY %s', p.pubname, p.name);
        CONTINUE WHEN p.rest IS NULL; -- no other column of the table was published
        EXECUTE format('ALTER PUBLICATION %I ADD TABLE ONLY %s (%s)%s', p.pubname, p.name, p.rest, p.filter);
    END LOOP;
END $$;
COMMENT ON FUNCTION embedsidecar.unpublish_column IS
    'Removes a column from the lists of publications, which would keep it from being dropped.';

CREATE OR REPLACE FUNCTION embedsidecar.model_change(pipeline text, model text, plugin text DEFAULT NULL,
    dry_run boolean DEFAULT false, said_by text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    id    integer := embedsidecar.pipeline_meant(model_change.pipeline);
    l     embedsidecar.pipeline;
    o     embedsidecar.pipeline;
    entry embedsidecar.audit_log;
BEGIN
    IF concat(model_change.model, model_change.plugin) = '' THEN
        RAISE EXCEPTION 'model_change: name the model' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF length(model_change.model) > 500 OR nullif(model_change.model, '') !~ '^[[:alnum:]][[:alnum:] ._:/@+=-]*$'
       OR nullif(model_change.plugin, '') !~ '^[[:alnum:]][[:alnum:]._-]{0,199}$' THEN
        RAISE EXCEPTION 'model_change: "%" is not a valid name of a model or plugin',
            left(concat_ws(' by ', model_change.model, model_change.plugin), 200)
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'use the names of the configuration; for other names run embedsidecar model change';
    END IF;
    SELECT p.* INTO STRICT l FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = id;
    SELECT p.* INTO o FROM embedsidecar.pipeline AS p WHERE p.beside = id;
    IF l.beside IS NOT NULL THEN
        RAISE EXCEPTION 'model_change: "%" is a generation that is not in use: name its pipeline', l.name
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    IF o.pipeline_id IS NOT NULL THEN
        IF NOT o.served AND o.model = model_change.model THEN
            RETURN 'already_under_way';
        END IF;
        RAISE EXCEPTION 'model_change: pipeline "%" already has a % generation, of model "%"', l.name,
            CASE WHEN o.served THEN 'previous' ELSE 'next' END, o.model
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('drop it first: SELECT embedsidecar.model_drop_old(%L);', l.name);
    END IF;
    entry := embedsidecar.begin_action('model_change', id, jsonb_strip_nulls(jsonb_build_object('model',
        model_change.model, 'plugin', model_change.plugin)), model_change.said_by, model_change.dry_run);
    IF model_change.dry_run THEN
        RETURN 'would_be_requested';
    END IF;
    UPDATE embedsidecar.pipeline AS p
    SET    wish = jsonb_strip_nulls(jsonb_build_object('model', model_change.model, 'plugin', model_change.plugin))
    WHERE  p.pipeline_id = id;
    PERFORM pg_notify('embedsidecar_waiting', '') WHERE pg_notification_queue_usage() < 0.5;
    PERFORM embedsidecar.move_job('model_change', id, 'replaced', NULL, true);
    UPDATE embedsidecar.audit_log AS a SET open = true WHERE a.audit_id = entry.audit_id;
    RETURN embedsidecar.end_action(entry.audit_id, 'requested', 1);
END $$;
COMMENT ON FUNCTION embedsidecar.model_change IS
    'Requests that a running sidecar makes the next generation of a pipeline, with another model, as embedsidecar '
    'model change does at once. The view generations has the outcome. Returns requested, already_under_way or, with '
    'dry_run, would_be_requested.';

CREATE OR REPLACE FUNCTION embedsidecar.generation_states(one text DEFAULT NULL)
RETURNS TABLE (pipeline text, role text, pipeline_id integer, model text, plugin text, dims integer,
    fingerprint text, destination text, state text, reason text, hints text[], pending bigint, failed bigint,
    scan_phase text, scan_seen bigint, scan_expected bigint, lacks text[], bytes bigint, wanted text, problem text,
    differs text, overlap double precision, overlap_least double precision, compared_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT coalesce(l.name, p.name), CASE WHEN p.beside IS NULL THEN 'serves' WHEN p.served THEN 'previous' ELSE 'next' END,
       p.pipeline_id, coalesce(nullif(p.model, ''), p.plugin), p.plugin, p.dims, p.fingerprint,
       -- for a dropped destination, where the vectors were
       CASE WHEN p.destination_column IS NULL
           THEN coalesce(d.quoted, format('%I.%I', p.destination_schema, p.destination_table))
           ELSE format('%s.%I', coalesce(d.quoted, format('%I.%I', p.table_schema, p.table_name)),
               coalesce(d.column_name, p.destination_column)) END,
       s.state, s.reason, s.hints, s.pending + s.running + s.retrying, s.failed, s.scan_phase, s.scan_seen,
       s.scan_expected,
       CASE WHEN p.beside IS NOT NULL THEN embedsidecar.generation_lacks(p.beside, p.pipeline_id, false) END,
       CASE WHEN p.destination_column IS NULL THEN pg_total_relation_size(d.relation) END,
       p.wish ->> 'model', p.wish ->> 'problem',
       CASE WHEN l.pipeline_id IS NOT NULL THEN concat_ws(', ',
           CASE WHEN (p.plugin, p.model) <> (l.plugin, l.model) THEN 'model'
                WHEN p.fingerprint <> l.fingerprint THEN 'weights' END,
           CASE WHEN (p.source_columns, p.text_expression, p.joins) IS DISTINCT FROM
                    (l.source_columns, l.text_expression, l.joins) THEN 'text' END,
           CASE WHEN p.chunking IS DISTINCT FROM l.chunking THEN 'chunking' END,
           CASE WHEN split_part(d.type, '(', 1) <> split_part((embedsidecar.destination_of(l.pipeline_id)).type, '(', 1)
                THEN 'type' END) END,
       (p.compared ->> 'overlap')::double precision, (p.compared ->> 'least')::double precision,
       (p.compared ->> 'at')::timestamptz
FROM   embedsidecar.pipeline AS p LEFT JOIN embedsidecar.pipeline AS l ON l.pipeline_id = p.beside
       LEFT JOIN LATERAL embedsidecar.destination_of(p.pipeline_id) AS d ON true
       CROSS JOIN LATERAL embedsidecar.states(one => p.pipeline_id) AS s
WHERE  generation_states.one IS NULL
       OR coalesce(p.beside, p.pipeline_id) = embedsidecar.pipeline_meant(generation_states.one)
ORDER  BY 1, p.beside NULLS FIRST
$$;
COMMENT ON FUNCTION embedsidecar.generation_states IS 'For the view generations.';

CREATE OR REPLACE FUNCTION embedsidecar.note_wish(pipeline_id integer, model text, problem text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
UPDATE embedsidecar.pipeline AS p
SET    wish = CASE WHEN note_wish.problem IS NOT NULL
           THEN p.wish || jsonb_build_object('problem', left(note_wish.problem, 4000)) END
WHERE  p.pipeline_id = note_wish.pipeline_id AND coalesce(p.wish ->> 'model', '') = coalesce(note_wish.model, '');
SELECT embedsidecar.move_job('model_change', note_wish.pipeline_id, 'refused', NULL, true)
WHERE  note_wish.problem IS NOT NULL
$$;
COMMENT ON FUNCTION embedsidecar.note_wish IS 'For sidecars: records the outcome of a requested model change.';

CREATE OR REPLACE FUNCTION embedsidecar.note_comparison(pipeline_id integer, overlap double precision,
    bound double precision, questions integer) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
UPDATE embedsidecar.pipeline AS p
SET    compared = jsonb_build_object('overlap', note_comparison.overlap, 'least', note_comparison.bound, 'questions',
           note_comparison.questions, 'at', now())
WHERE  p.pipeline_id = note_comparison.pipeline_id AND p.beside IS NOT NULL
$$;
COMMENT ON FUNCTION embedsidecar.note_comparison IS
    'For sidecars: records how far the results of a next generation equal those of the one that serves.';
