-- Who goes on with an action, and what a sidecar says of itself.

-- begin_action as before; but who goes on with an action does so with what it was begun with, or its entry of the audit would not tell what was done:
-- the same rows, and, as one role may act for several people, the same person. Of more than a hundred keys the entry has a hash. And times stand there
-- in one form, whatever form the session has.
CREATE OR REPLACE FUNCTION embedsidecar.begin_action(action text, pipeline_id integer, arguments jsonb, said_by text, continues bigint, max_rows integer, keys text[], dry_run boolean)
RETURNS embedsidecar.audit_log
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    entry embedsidecar.audit_log;
    about jsonb := begin_action.arguments;
    style text := current_setting('intervalstyle');
    word  text;
    value interval;
    by_   text := coalesce(left(begin_action.said_by, 200), '');
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
    FOREACH word IN ARRAY ARRAY['older_than', 'time'] LOOP -- as the session prints them: in the audit all are of one form
        value := (about ->> word)::interval;
        PERFORM set_config('intervalstyle', 'postgres', true);
        about := about || jsonb_build_object(word, value::text);
        PERFORM set_config('intervalstyle', style, true);
    END LOOP;
    about := jsonb_strip_nulls(jsonb_build_object('pipeline_id', begin_action.pipeline_id::text, 'keys', to_jsonb(begin_action.keys[1:100]),
        'keys_given', cardinality(begin_action.keys),
        'keys_sha256', CASE WHEN cardinality(begin_action.keys) > 100 THEN encode(sha256(convert_to(to_jsonb(begin_action.keys)::text, 'UTF8')), 'hex') END)
        || about);
    IF begin_action.continues IS NOT NULL THEN
        SELECT a.* INTO entry FROM embedsidecar.audit_log AS a
        WHERE  a.audit_id = begin_action.continues AND a.action = begin_action.action AND a.role_name = session_user AND a.said_by = by_ AND a.arguments = about
        FOR UPDATE;
        IF entry.audit_id IS NULL THEN
            RAISE EXCEPTION '%: continues: no action % of yours is % of these rows', begin_action.action, begin_action.continues, begin_action.action
                USING ERRCODE = 'invalid_parameter_value', HINT = 'continues is the audit_id that the first portion returned: give all else as it was given there, or begin anew without it';
        END IF;
        RETURN entry;
    END IF;
    INSERT INTO embedsidecar.audit_log AS a (action, pipeline, arguments, said_by, place)
    SELECT begin_action.action, (SELECT p.name FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = begin_action.pipeline_id), about, by_,
           coalesce(pg_sequence_last_value('embedsidecar.task_seq'::regclass), 0)
    RETURNING a.* INTO entry;
    DELETE FROM embedsidecar.audit_log AS a WHERE a.audit_id <= entry.audit_id - 100000;
    RETURN entry;
END $$;

-- What a sidecar does, and where: for whoever looks at many.
ALTER TABLE embedsidecar.worker ADD COLUMN role text NOT NULL DEFAULT '', ADD COLUMN host text NOT NULL DEFAULT '';
COMMENT ON COLUMN embedsidecar.worker.role IS 'all, stream or work; empty: a version of before has not said it.';
COMMENT ON COLUMN embedsidecar.worker.host IS 'The name of its machine, as that has it.';
---- create above / drop below ----
ALTER TABLE embedsidecar.worker DROP COLUMN host, DROP COLUMN role;
CREATE OR REPLACE FUNCTION embedsidecar.begin_action(action text, pipeline_id integer, arguments jsonb, said_by text, continues bigint, max_rows integer, keys text[], dry_run boolean)
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
