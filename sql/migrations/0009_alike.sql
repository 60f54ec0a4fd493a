-- What doors say alike: hashes of texts, what an action came to, a scan that waits.

-- The hash of a short text is guessed by whoever tries texts: it is for those who may read the text themselves, each of its columns, whatever row it
-- is. Who asks is the role that the session has set: current_user is the owner of the function that calls this.
CREATE FUNCTION embedsidecar.may_see_text(id integer) RETURNS boolean
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
REVOKE ALL ON FUNCTION embedsidecar.may_see_text FROM PUBLIC;
DO $$
DECLARE
    owner name := (SELECT pg_get_userbyid(n.nspowner) FROM pg_namespace AS n WHERE n.nspname = 'embedsidecar');
BEGIN
    IF owner <> current_user THEN
        EXECUTE format('ALTER FUNCTION embedsidecar.may_see_text OWNER TO %I', owner);
    END IF;
END $$;

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

-- An action on rows that found none says so, as the command line and HTTP do.
CREATE OR REPLACE FUNCTION embedsidecar.end_action(entry bigint, result text, changed bigint, after_key text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
UPDATE embedsidecar.audit_log AS a
SET    result = CASE WHEN a.changed + end_action.changed = 0 AND a.action IN ('retry', 'discard', 'reembed', 'requeue', 'cancel', 'prioritise') THEN 'nothing_to_' || a.action
                     WHEN a.action = 'discard' THEN 'discarded' ELSE end_action.result END,
       changed = a.changed + end_action.changed, after_key = coalesce(end_action.after_key, a.after_key), finished_at = clock_timestamp()
WHERE  a.audit_id = entry
$$;

-- A scan that waits has seen nothing yet: what it shows is not of the one before.
CREATE OR REPLACE VIEW embedsidecar.progress AS
SELECT p.name AS pipeline, s.phase, s.reason, s.finished_at IS NULL AS backfill,
       CASE WHEN s.phase = 'waiting' THEN 0 ELSE s.rows_seen END AS rows_seen, s.rows_expected, CASE WHEN s.phase = 'waiting' THEN 0 ELSE s.tasks_made END AS tasks_made,
       CASE WHEN s.phase = 'rows' THEN s.rows_seen / greatest(extract(epoch FROM now() - s.started_at), 1) END::double precision AS rows_per_second,
       CASE WHEN s.phase = 'waiting' AND s.barrier > pg_snapshot_xmin(pg_current_snapshot()) THEN s.barrier END AS waits_for_transactions_before,
       s.requested_at, CASE WHEN s.phase <> 'waiting' THEN s.started_at END AS started_at, s.finished_at
FROM   embedsidecar.scan AS s JOIN embedsidecar.pipeline AS p ON p.pipeline_id = s.pipeline_id;
COMMENT ON COLUMN embedsidecar.progress.rows_seen IS 'Rows compared so far; 0: it waits.';
COMMENT ON COLUMN embedsidecar.progress.rows_expected IS 'By the server''s estimate when it, or while it waits the one before, began; 0: there was none.';
COMMENT ON COLUMN embedsidecar.progress.tasks_made IS 'Rows that differed, so that they are looked at; 0: it waits, or there were none.';
COMMENT ON COLUMN embedsidecar.progress.requested_at IS 'When one was last asked for; later than started_at: another waits until this one has ended.';
COMMENT ON COLUMN embedsidecar.progress.started_at IS 'When the one that runs, or ran last, began; NULL: it waits.';

-- backfill is the verb for a look at every row, and rescan its other name.
CREATE FUNCTION embedsidecar.backfill(pipeline text, dry_run boolean DEFAULT false, said_by text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    id    integer := embedsidecar.pipeline_meant(backfill.pipeline);
    entry embedsidecar.audit_log := embedsidecar.begin_action('backfill', id, '{}', backfill.said_by, NULL, 1, NULL, backfill.dry_run);
BEGIN
    IF backfill.dry_run THEN
        RETURN 'scan_would_be_requested';
    END IF;
    PERFORM embedsidecar.ask_for_scan(id, 'asked for');
    PERFORM embedsidecar.end_action(entry.audit_id, 'scan_requested', 0, NULL);
    RETURN 'scan_requested';
END $$;
COMMENT ON FUNCTION embedsidecar.backfill(text, boolean, text) IS 'Have every row of a pipeline looked at now; those that have no vector of their text as it is are embedded, and no others. Returns scan_requested or, with dry_run, scan_would_be_requested.';
COMMENT ON FUNCTION embedsidecar.ask_for_scan(integer, text) IS 'What backfill and reembed do: every row is compared with what was written for it.';

CREATE OR REPLACE FUNCTION embedsidecar.rescan(pipeline text, dry_run boolean DEFAULT false, said_by text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN embedsidecar.backfill(rescan.pipeline, rescan.dry_run, rescan.said_by);
END $$;
COMMENT ON FUNCTION embedsidecar.rescan(text, boolean, text) IS 'The other name of backfill, which is what the audit calls it.';
COMMENT ON COLUMN embedsidecar.audit.action IS 'pause, resume, retry, requeue, cancel, discard, reembed, backfill (rescan, in a version of before), set_priority, prioritise, notify or reload.';

-- Whoever may call it by the other name may call it by this one.
REVOKE ALL ON FUNCTION embedsidecar.backfill FROM PUBLIC;
DO $$
DECLARE
    owner name := (SELECT pg_get_userbyid(n.nspowner) FROM pg_namespace AS n WHERE n.nspname = 'embedsidecar');
    role  text;
BEGIN
    FOR role IN SELECT a.grantee::regrole FROM pg_proc AS p CROSS JOIN LATERAL aclexplode(p.proacl) AS a
                WHERE p.oid = 'embedsidecar.rescan(text, boolean, text)'::regprocedure AND a.grantee NOT IN (0, p.proowner) LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION embedsidecar.backfill TO %s', role);
    END LOOP;
    IF owner <> current_user THEN
        EXECUTE format('ALTER FUNCTION embedsidecar.backfill OWNER TO %I', owner);
    END IF;
END $$;
---- create above / drop below ----
COMMENT ON COLUMN embedsidecar.audit.action IS 'pause, resume, retry, requeue, cancel, discard, reembed, rescan or set_priority.';
COMMENT ON FUNCTION embedsidecar.ask_for_scan(integer, text) IS 'What rescan and reembed do: every row is compared with what was written for it.';
CREATE OR REPLACE FUNCTION embedsidecar.rescan(pipeline text, dry_run boolean DEFAULT false, said_by text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    id    integer := embedsidecar.pipeline_meant(rescan.pipeline);
    entry embedsidecar.audit_log := embedsidecar.begin_action('rescan', id, '{}', rescan.said_by, NULL, 1, NULL, rescan.dry_run);
BEGIN
    IF rescan.dry_run THEN
        RETURN 'scan_would_be_requested';
    END IF;
    PERFORM embedsidecar.ask_for_scan(id, 'asked for');
    PERFORM embedsidecar.end_action(entry.audit_id, 'scan_requested', 0, NULL);
    RETURN 'scan_requested';
END $$;
COMMENT ON FUNCTION embedsidecar.rescan(text, boolean, text) IS 'Have every row of a pipeline compared with what was written for it; only those that differ are embedded. Returns scan_requested or, with dry_run, scan_would_be_requested.';
DROP FUNCTION embedsidecar.backfill(text, boolean, text);
CREATE OR REPLACE VIEW embedsidecar.progress AS
SELECT p.name AS pipeline, s.phase, s.reason, s.finished_at IS NULL AS backfill, s.rows_seen, s.rows_expected, s.tasks_made,
       CASE WHEN s.phase = 'rows' THEN s.rows_seen / greatest(extract(epoch FROM now() - s.started_at), 1) END::double precision AS rows_per_second,
       CASE WHEN s.phase = 'waiting' AND s.barrier > pg_snapshot_xmin(pg_current_snapshot()) THEN s.barrier END AS waits_for_transactions_before,
       s.requested_at, s.started_at, s.finished_at
FROM   embedsidecar.scan AS s JOIN embedsidecar.pipeline AS p ON p.pipeline_id = s.pipeline_id;
COMMENT ON COLUMN embedsidecar.progress.rows_seen IS 'Rows compared so far.';
COMMENT ON COLUMN embedsidecar.progress.rows_expected IS 'By the server''s estimate when it began; 0: there was none.';
COMMENT ON COLUMN embedsidecar.progress.tasks_made IS 'Rows that differed, so that they are looked at.';
COMMENT ON COLUMN embedsidecar.progress.requested_at IS 'When it was last asked for.';
COMMENT ON COLUMN embedsidecar.progress.started_at IS 'When the one that runs, or ran last, began.';
CREATE OR REPLACE FUNCTION embedsidecar.end_action(entry bigint, result text, changed bigint, after_key text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
UPDATE embedsidecar.audit_log AS a
SET    result = end_action.result, changed = a.changed + end_action.changed, after_key = coalesce(end_action.after_key, a.after_key), finished_at = clock_timestamp()
WHERE  a.audit_id = entry
$$;
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
DROP FUNCTION embedsidecar.may_see_text(integer);
