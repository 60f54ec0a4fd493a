-- Least privilege for `embedsidecar run`: a role that works (reads the sources, writes only our data, and cannot
-- replicate), and a role that streams (may replicate, but may read no table). `embedsidecar run --database-url` uses
-- the first, `--stream-url` the second. The script also creates groups for users and programs that work by SQL
-- (docs/sql.md): embedsidecar_reader only reads the views, embedsidecar_operator may also pause, resume, retry and the
-- like. Members of embedsidecar_searcher, for applications that search by SQL (docs/search.md), embed texts and find
-- rows of tables that they may read anyway. To add a member: GRANT embedsidecar_reader TO some_role; Run the script as
-- the owner of the source tables and of the schema embedsidecar, after `embedsidecar init`. It can be repeated. CREATE
-- ROLE ... REPLICATION requires a superuser, or from PostgreSQL 16 on CREATEROLE and REPLICATION; a role of that name
-- that already exists is used as it is.
-- Its blocks look up nothing by the search_path, which the owner of the database may have set.
DO $embedsidecar$ BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'embedsidecar_run') THEN
        CREATE ROLE embedsidecar_run LOGIN;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'embedsidecar_stream') THEN
        CREATE ROLE embedsidecar_stream LOGIN REPLICATION;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'embedsidecar_reader') THEN
        CREATE ROLE embedsidecar_reader NOLOGIN;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'embedsidecar_operator') THEN
        CREATE ROLE embedsidecar_operator NOLOGIN;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'embedsidecar_searcher') THEN
        CREATE ROLE embedsidecar_searcher NOLOGIN;
    END IF;
END $embedsidecar$;

-- The owner of the schema may act as the role that works, so that role may trust the owner's objects. From PostgreSQL
-- 16 on, not every member may.
DO $embedsidecar$
DECLARE
    owner pg_catalog.name;
    modern boolean;
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    owner := (SELECT pg_get_userbyid(n.nspowner) FROM pg_namespace AS n WHERE n.nspname = 'embedsidecar');
    modern := current_setting('server_version_num')::integer >= 160000;
    IF NOT pg_has_role(owner, 'embedsidecar_run', CASE WHEN modern THEN 'USAGE, SET, MEMBER WITH ADMIN OPTION'
            ELSE 'MEMBER' END) THEN
        EXECUTE format('GRANT %I TO %I', 'embedsidecar_run', owner)
            || CASE WHEN modern THEN ' WITH INHERIT FALSE, SET TRUE' ELSE '' END;
    END IF;
END $embedsidecar$;

-- A pooler loses settings of a session; then these defaults of the role apply. No application shares the role.
ALTER ROLE embedsidecar_run SET search_path = pg_catalog, pg_temp;
ALTER ROLE embedsidecar_run SET role = 'none'; -- not one that the owner of the database may set
ALTER ROLE embedsidecar_run SET intervalstyle = 'postgres';
ALTER ROLE embedsidecar_run SET extra_float_digits = 3;
ALTER ROLE embedsidecar_run SET bytea_output = 'hex';
ALTER ROLE embedsidecar_run SET row_security = off;
ALTER ROLE embedsidecar_run SET lock_timeout = '500ms';
ALTER ROLE embedsidecar_run SET default_transaction_isolation = 'read committed';
ALTER ROLE embedsidecar_run SET idle_in_transaction_session_timeout = '15s';

GRANT USAGE ON SCHEMA embedsidecar TO embedsidecar_run;
GRANT SELECT ON ALL TABLES IN SCHEMA embedsidecar TO embedsidecar_run;
GRANT INSERT, UPDATE, DELETE ON embedsidecar.task, embedsidecar.lease, embedsidecar.turn, embedsidecar.aside,
    embedsidecar.ledger, embedsidecar.worker, embedsidecar.route, embedsidecar.configured,
    embedsidecar.answer, embedsidecar.measure, embedsidecar.batch_job, embedsidecar.batch_item,
    embedsidecar.batch_text TO embedsidecar_run;
GRANT INSERT ON embedsidecar.history TO embedsidecar_run;
GRANT INSERT, UPDATE ON embedsidecar.scan, embedsidecar.spent TO embedsidecar_run;
GRANT UPDATE ON embedsidecar.init_lock, embedsidecar.index_lock TO embedsidecar_run; -- to lock them
-- Without the names of slot and publication, because an uninstall by the owner drops what they name. An earlier script
-- granted all of it.
REVOKE UPDATE ON embedsidecar.lsn_checkpoint FROM embedsidecar_run;
GRANT UPDATE (publication_oid, system_id, timeline, consistent_point, lsn, epoch, saved_at, changes_unchanged,
    changes_joined, hints_ignored) ON embedsidecar.lsn_checkpoint TO embedsidecar_run;
GRANT UPDATE (status, status_detail, catalogue, table_schema, table_name, generation, lease_epoch, origin)
    ON embedsidecar.pipeline TO embedsidecar_run;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA embedsidecar TO embedsidecar_run;
-- What this role could do by its table rights, it may do by functions that record it in the audit.
GRANT EXECUTE ON FUNCTION embedsidecar.retry_failed, embedsidecar.requeue, embedsidecar.backfill,
    embedsidecar.reembed, embedsidecar.keeps_ledger TO embedsidecar_run;
GRANT EXECUTE ON FUNCTION embedsidecar.states, embedsidecar.slot_states, embedsidecar.call, embedsidecar.runs,
    embedsidecar.rests,
    embedsidecar.blockers, embedsidecar.queue_holders,
    embedsidecar.row_facts, embedsidecar.tell, embedsidecar.drain_state, embedsidecar.is_open,
    embedsidecar.budgets, embedsidecar.has_budget, embedsidecar.affords, embedsidecar.hold_budget,
    embedsidecar.hold_budgets,
    embedsidecar.settle_budget, embedsidecar.batch_jobs,
    embedsidecar.minute_of_week, embedsidecar.texts_cut, embedsidecar.search_costs, embedsidecar.note_reload,
    embedsidecar.note_setup,
    embedsidecar.prune_audit, embedsidecar.prune_history, embedsidecar.tell_audit, embedsidecar.generation_states,
    embedsidecar.finished,
    embedsidecar.note_complete, embedsidecar.note_wish, embedsidecar.note_comparison,
    embedsidecar.lives, embedsidecar.server_life, embedsidecar.may_work, embedsidecar.plan, embedsidecar.waits_for,
    embedsidecar.joined_tables TO embedsidecar_run;

GRANT USAGE ON SCHEMA embedsidecar TO embedsidecar_reader, embedsidecar_operator;
GRANT SELECT ON embedsidecar.status, embedsidecar.progress, embedsidecar.tasks, embedsidecar.dead_letters,
    embedsidecar.errors, embedsidecar.slots,
    embedsidecar.workers, embedsidecar.pipelines, embedsidecar.health, embedsidecar.audit, embedsidecar.row_state,
    embedsidecar.lanes, embedsidecar.generations, embedsidecar.indexes, embedsidecar.configuration,
    embedsidecar.requests, embedsidecar.finished_tasks TO embedsidecar_reader, embedsidecar_operator;
GRANT EXECUTE ON FUNCTION embedsidecar.backlog, embedsidecar.caught_up, embedsidecar.wait_for, embedsidecar.waited_for,
    embedsidecar.how_far, embedsidecar.is_open, embedsidecar.batch_jobs, embedsidecar.budgets, embedsidecar.has_budget,
    embedsidecar.affords,
    embedsidecar.minute_of_week, embedsidecar.states,
    embedsidecar.slot_states, embedsidecar.runs, embedsidecar.call,
    embedsidecar.lives, embedsidecar.may_work, embedsidecar.plan, embedsidecar.texts_cut,
    embedsidecar.search_costs, embedsidecar.waits_for
    TO embedsidecar_reader, embedsidecar_operator;
GRANT EXECUTE ON FUNCTION embedsidecar.finished, embedsidecar.drain_state, embedsidecar.explain, embedsidecar.row_key,
    embedsidecar.view_sql, embedsidecar.generation_states, embedsidecar.current_model, embedsidecar.check_model
    TO embedsidecar_reader, embedsidecar_operator;
GRANT EXECUTE ON PROCEDURE embedsidecar.wait_until, embedsidecar.drain TO embedsidecar_reader, embedsidecar_operator;
GRANT EXECUTE ON FUNCTION embedsidecar.pause, embedsidecar.resume, embedsidecar.retry_failed, embedsidecar.requeue,
    embedsidecar.cancel, embedsidecar.discard_dead,
    embedsidecar.backfill, embedsidecar.reembed, embedsidecar.set_priority, embedsidecar.notify_changes,
    embedsidecar.prioritise, embedsidecar.clear_history, embedsidecar.note_bulk, embedsidecar.model_change,
    embedsidecar.model_switch, embedsidecar.model_rollback, embedsidecar.model_drop_old TO embedsidecar_operator;
-- For the command line, which finds pipelines by their names.
GRANT SELECT ON embedsidecar.schema_version TO embedsidecar_operator;
GRANT SELECT (pipeline_id, name, table_schema, table_name, enabled, labels) ON embedsidecar.pipeline
    TO embedsidecar_operator;

-- Searching roles also need SELECT on the key and the vectors of the tables that they search, and on chunks if texts
-- are cut: grant it to the roles that may read these rows. Policies of row-level security apply to them.
GRANT USAGE ON SCHEMA embedsidecar TO embedsidecar_searcher;
GRANT EXECUTE ON FUNCTION embedsidecar.search, embedsidecar.neighbours, embedsidecar.search_owner,
    embedsidecar.search_statement, embedsidecar.printed, embedsidecar.rows_with_tasks, embedsidecar.missing_grants,
    embedsidecar.check_search, embedsidecar.embed, embedsidecar.begin_ask, embedsidecar.asked,
    embedsidecar.check_rerank, embedsidecar.text_statement, embedsidecar.nearest_to, embedsidecar.candidates,
    embedsidecar.rerank, embedsidecar.search_across, embedsidecar.highlight,
    embedsidecar.current_model, embedsidecar.check_model, embedsidecar.served_by, embedsidecar.still_named,
    embedsidecar.wait_for TO embedsidecar_searcher;
GRANT EXECUTE ON PROCEDURE embedsidecar.ask TO embedsidecar_searcher;

-- A pipeline into a column of the source table:
--   GRANT SELECT (id, title, body, embedding), UPDATE (embedding) ON public.docs TO embedsidecar_run;
-- A pipeline into an embedding table:
--   GRANT SELECT (id, title, body) ON public.docs TO embedsidecar_run;
--   GRANT SELECT, INSERT, UPDATE, DELETE ON public.docs_embedding TO embedsidecar_run;
-- Schemas other than public also need: GRANT USAGE ON SCHEMA ... TO embedsidecar_run; A source table with row-level
-- security also needs: ALTER ROLE embedsidecar_run BYPASSRLS (superuser), or policies would hide rows from the role.
-- `embedsidecar roles` with a database adds these grants for each pipeline, and `embedsidecar roles --grants` prints
-- only them.
