-- Only these functions determine the states of slots, pipelines and rows. The command line, views, HTTP, dashboard,
-- metrics and probes show their results. They read tables and no views: the program's sessions refuse views.

-- Any session may take a sidecar's name.
CREATE OR REPLACE FUNCTION embedsidecar.may_work(role oid) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT EXISTS (SELECT FROM pg_class AS c
               CROSS JOIN LATERAL aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) AS g
               WHERE c.oid = 'embedsidecar.worker'::regclass AND g.privilege_type = 'INSERT'
                     AND embedsidecar.acts_as(may_work.role, g.grantee))
$$;
COMMENT ON FUNCTION embedsidecar.may_work(oid) IS
    'Whether a role may work as a sidecar here, or act as such a role. Sessions of other roles count as none, '
    'whatever their name.';

CREATE OR REPLACE FUNCTION embedsidecar.runs(w embedsidecar.worker) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT coalesce(w.quiet_until, w.last_seen_at) > now() - interval '5 minutes'
       AND (w.session_name = '' OR EXISTS (SELECT FROM pg_catalog.pg_stat_activity AS a
           WHERE a.application_name = w.session_name AND a.pid <> pg_backend_pid()
                 AND (a.datname = current_database() AND embedsidecar.may_work(a.usesysid)
                      OR w.quiet_until IS NOT NULL)))
$$;
COMMENT ON FUNCTION embedsidecar.runs(embedsidecar.worker) IS
    'Whether a sidecar was seen recently and a session of its name exists, here or on the server after it has left a '
    'quiet database. A killed sidecar leaves its row.';

-- An idle streamer stores its position late. This message reaches it through the slot, outside of any transaction: the
-- caller may hold one open, and then a NOTIFY would not be sent. Before 17 the message waits in memory until a session
-- commits or its page is full. A full page is flushed soon, so a second message fills it.
CREATE OR REPLACE FUNCTION embedsidecar.hurry() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('server_version_num')::integer >= 170000 THEN
        EXECUTE $q$SELECT pg_logical_emit_message(false, 'embedsidecar.wait', '', true)$q$;
    ELSE
        PERFORM pg_logical_emit_message(false, 'embedsidecar.wait', '');
        PERFORM pg_logical_emit_message(false, 'embedsidecar.fill',
            repeat(' ', current_setting('wal_block_size')::integer));
    END IF;
END $$;
COMMENT ON FUNCTION embedsidecar.hurry() IS 'Makes the streamers store their positions as soon as they read this.';

-- After a crash the server resets its statistics. PostgreSQL 14 keeps them in a file that no function reads.
CREATE OR REPLACE FUNCTION embedsidecar.server_life() RETURNS timestamptz
LANGUAGE sql STABLE AS $$
SELECT greatest(pg_catalog.pg_postmaster_start_time(),
    CASE WHEN pg_catalog.current_setting('server_version_num')::integer >= 150000
        THEN pg_catalog.pg_stat_get_bgwriter_stat_reset_time() END)
$$;
COMMENT ON FUNCTION embedsidecar.server_life() IS
    'When the server last started, or recovered from a crash: earlier commits may be lost.';

-- 1701013875 is the number of these locks.
CREATE OR REPLACE FUNCTION embedsidecar.call() RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- No NOTIFY if the queue is half full: a sleeping listener could keep it full, which fails the transaction.
    IF pg_notification_queue_usage() >= 0.5 AND NOT pg_is_in_recovery() THEN
        PERFORM embedsidecar.hurry();
    END IF;
    IF EXISTS (SELECT FROM embedsidecar.worker AS w WHERE w.quiet_until IS NOT NULL AND embedsidecar.runs(w))
       AND NOT EXISTS (SELECT FROM embedsidecar.worker AS w WHERE w.quiet_until IS NULL AND embedsidecar.runs(w)) THEN
        -- Without waiting: every role may hold this lock, and its holder has called already.
        PERFORM pg_try_advisory_xact_lock_shared(1701013875, 1);
        RETURN true;
    END IF;
    RETURN false;
END $$;
COMMENT ON FUNCTION embedsidecar.call() IS
    'Wakes a sidecar that has disconnected from this idle database; it checks every second. The call lasts as long as '
    'the transaction. Returns false if none has disconnected, or one is connected.';

CREATE OR REPLACE FUNCTION embedsidecar.lives(c embedsidecar.configured) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_activity AS a
    WHERE a.datname = current_database() AND a.application_name = c.session_name AND a.pid <> pg_backend_pid()
        AND embedsidecar.may_work(a.usesysid))
    OR EXISTS (SELECT FROM embedsidecar.worker AS w WHERE w.quiet_until IS NOT NULL
        AND w.session_name = c.session_name AND embedsidecar.runs(w))
$$;
COMMENT ON FUNCTION embedsidecar.lives(embedsidecar.configured) IS
    'Whether the sidecar with this configuration runs: a session of its name exists, or it has left while nothing '
    'changes.';

CREATE OR REPLACE FUNCTION embedsidecar.rests(p embedsidecar.pipeline) RETURNS text
LANGUAGE sql STABLE AS $$
SELECT CASE WHEN NOT (p.enabled AND (SELECT i.enabled FROM embedsidecar.installation AS i)) THEN 'paused'
            WHEN p.status <> 'active' THEN p.status
            WHEN NOT embedsidecar.is_open(p.active_minutes, p.active_zone, p.open_until) THEN 'outside_hours'
            WHEN NOT embedsidecar.has_budget(p.budget, p.model_budget, p.pipeline_id) THEN 'budget_spent' END
$$;
COMMENT ON FUNCTION embedsidecar.rests(embedsidecar.pipeline) IS
    'The state of a pipeline that must not or cannot work, with or without a sidecar; NULL if it may work.';

CREATE OR REPLACE FUNCTION embedsidecar.age_words(seconds double precision) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
SELECT CASE WHEN seconds IS NULL THEN NULL
            WHEN round(seconds) < 60 THEN round(seconds) || ' s'
            WHEN round(seconds) < 3600
            THEN concat_ws(' ', round(seconds)::bigint / 60 || ' min', nullif(round(seconds)::bigint % 60, 0) || ' s')
            WHEN round(seconds) < 172800
            THEN concat_ws(' ', round(seconds)::bigint / 3600 || ' h',
                nullif(round(seconds)::bigint % 3600 / 60, 0) || ' min')
            ELSE concat_ws(' ', round(seconds)::bigint / 86400 || ' days',
                nullif(round(seconds)::bigint % 86400 / 3600, 0) || ' h') END
$$;
COMMENT ON FUNCTION embedsidecar.age_words(double precision) IS 'A duration for people: 40 s, 8 min 6 s, 3 h 20 min.';

CREATE OR REPLACE FUNCTION embedsidecar.rows_words(n bigint) RETURNS text
LANGUAGE sql IMMUTABLE AS $$ SELECT n || CASE n WHEN 1 THEN ' row' ELSE ' rows' END $$;
COMMENT ON FUNCTION embedsidecar.rows_words(bigint) IS 'A number of rows for people.';

-- A key may look like a flag: a pasted command must not reach another server, or act on all rows.
CREATE OR REPLACE FUNCTION embedsidecar.shell_word(name text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
SELECT CASE WHEN name LIKE '-%' THEN '-- ' ELSE '' END
    || CASE WHEN name ~ '^[A-Za-z0-9_.:-]*$' THEN name ELSE '''' || replace(name, '''', '''\''''') || '''' END
$$;
COMMENT ON FUNCTION embedsidecar.shell_word(text) IS 'A name as an argument of a shell command.';

CREATE OR REPLACE FUNCTION embedsidecar.session_words(pid integer, gid text, database text, role text, application text,
    state text, age double precision)
RETURNS text LANGUAGE sql IMMUTABLE AS $$
SELECT concat_ws(', ', CASE WHEN gid <> '' THEN 'prepared transaction ' || quote_literal(gid) ELSE 'pid ' || pid END
           || ' of role ' || role || ' in database ' || database,
           nullif(application, ''), nullif(state, ''), 'open for ' || embedsidecar.age_words(age))
$$;
COMMENT ON FUNCTION embedsidecar.session_words(integer, text, text, text, text, text, double precision) IS
    'Describes an open transaction: its session and how to find it.';

-- The result does not contain the sessions' queries.
CREATE OR REPLACE FUNCTION embedsidecar.blockers(before xid8 DEFAULT NULL)
RETURNS TABLE (pid integer, gid text, database text, role text, application text, state text,
    age_seconds double precision, words text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
WITH now AS MATERIALIZED (
    -- pg_locks gives the low half of a transaction id; the high half makes it the nearest id to the current one.
    SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS top
), open AS (
    SELECT l.pid, '' AS gid, a.datname::text AS database, a.usename::text AS role, a.application_name AS application,
        a.state,
           extract(epoch FROM clock_timestamp() - a.xact_start) AS age, l.transactionid AS xid
    FROM   pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
    WHERE  l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid <> pg_backend_pid()
    UNION ALL
    SELECT 0, p.gid, p.database::text, p.owner::text, '', '', extract(epoch FROM clock_timestamp() - p.prepared),
        p.transaction
    FROM   pg_prepared_xacts AS p
), whole AS (
    SELECT o.*, n.top - ((n.top - o.xid::text::bigint + 2147483648) & 4294967295) + 2147483648 AS id
    FROM   open AS o CROSS JOIN now AS n
), list AS (
    SELECT w.pid, w.gid, coalesce(w.database, '') AS database, coalesce(w.role, '') AS role,
        coalesce(w.application, '') AS application,
           coalesce(w.state, '') AS state, max(w.age)::double precision AS age, min(w.id) AS id
    FROM   whole AS w WHERE blockers.before IS NULL OR w.id < blockers.before::text::bigint
    GROUP BY 1, 2, 3, 4, 5, 6
)
SELECT l.pid, l.gid, l.database, l.role, l.application, l.state, l.age,
       embedsidecar.session_words(l.pid, l.gid, l.database, l.role, l.application, l.state, l.age)
FROM   list AS l ORDER BY l.id
$$;
COMMENT ON FUNCTION embedsidecar.blockers(xid8) IS
    'The open transactions of the whole cluster that have an id, oldest first: those that the creation of a slot '
    'waits for, or, below the id of its barrier, a scan.';

-- Our own transactions are short, so they are left out.
CREATE OR REPLACE FUNCTION embedsidecar.holders(tables oid[], modes text[])
RETURNS TABLE (relation oid, mode text, pid integer, gid text, database text, role text, application text, state text,
    age_seconds double precision, words text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
WITH held AS (
    SELECT DISTINCT l.relation, l.mode, l.pid, l.virtualtransaction
    FROM   pg_locks AS l
    WHERE  (holders.tables IS NULL OR l.relation = ANY (holders.tables)) AND l.granted
        AND l.pid IS DISTINCT FROM pg_backend_pid() AND l.mode = ANY (holders.modes)
           AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
), list AS (
    SELECT h.relation, h.mode, a.pid, '' AS gid, coalesce(a.datname::text, '') AS database,
           coalesce(a.usename::text, '') AS role,
           coalesce(a.application_name, '') AS application, coalesce(a.state, '') AS state,
           extract(epoch FROM statement_timestamp() - a.xact_start)::double precision AS age
    FROM   held AS h JOIN pg_stat_activity AS a ON a.pid = h.pid
    WHERE  a.backend_type IS DISTINCT FROM 'autovacuum worker'
           AND NOT EXISTS (SELECT FROM embedsidecar.worker AS w WHERE w.session_name <> ''
               AND w.session_name = a.application_name)
    UNION ALL
    SELECT h.relation, h.mode, 0, p.gid, p.database::text, p.owner::text, '', '', extract(epoch
        FROM statement_timestamp() - p.prepared)::double precision
    FROM   held AS h
           JOIN pg_locks AS x ON x.virtualtransaction = h.virtualtransaction AND x.locktype = 'transactionid'
           JOIN pg_prepared_xacts AS p ON p.transaction = x.transactionid
    WHERE  h.pid IS NULL
)
SELECT l.relation, l.mode, l.pid, l.gid, l.database, l.role, l.application, l.state, l.age,
       embedsidecar.session_words(l.pid, l.gid, l.database, l.role, l.application, l.state, l.age)
FROM   list AS l
$$;
COMMENT ON FUNCTION embedsidecar.holders(oid[], text[]) IS
    'The open transactions of others that hold a lock of some modes on some tables; NULL: on any.';

CREATE OR REPLACE FUNCTION embedsidecar.queue_holders()
RETURNS TABLE (pid integer, gid text, database text, role text, application text, state text,
    age_seconds double precision, words text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT DISTINCT h.pid, h.gid, h.database, h.role, h.application, h.state, h.age_seconds, h.words
FROM   embedsidecar.holders(ARRAY['embedsidecar.task'::regclass, 'embedsidecar.scan'::regclass]::oid[],
           '{RowExclusiveLock,ShareUpdateExclusiveLock,ShareLock,ShareRowExclusiveLock,ExclusiveLock,'
           'AccessExclusiveLock}') AS h
ORDER BY h.age_seconds DESC NULLS LAST, h.pid, h.gid
$$;
COMMENT ON FUNCTION embedsidecar.queue_holders() IS
    'The open transactions that may block tasks and scans, oldest first: they have changed a row or locked a table.';

CREATE OR REPLACE FUNCTION embedsidecar.slot_states()
RETURNS TABLE (slot_name name, publication name, checkpoint pg_lsn, saved_at timestamptz, "exists" boolean,
    active boolean,
    active_pid integer, held_by text, wal_status text, safe_wal_bytes bigint, lag_bytes bigint, retained_bytes bigint,
    publication_exists boolean, other_server boolean, elsewhere text, making boolean, changes_unchanged bigint,
    changes_joined bigint, waits_for jsonb, sidecars jsonb, changes_hands boolean,
    state text, status text, reason text, hints text[], may_miss boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
WITH fact AS (
    SELECT c.slot_name, c.publication, c.lsn AS checkpoint, c.saved_at, coalesce(s.database = current_database(),
        false) AS "exists",
           coalesce(s.active, false) AS active, s.active_pid, a.application_name AS held_by, s.wal_status,
           s.safe_wal_size AS safe_wal_bytes, pg_wal_lsn_diff(e.wal_end, c.lsn)::bigint AS lag_bytes,
           pg_wal_lsn_diff(e.wal_end, s.restart_lsn)::bigint AS retained_bytes, p.oid IS NOT NULL AS publication_exists,
           c.consistent_point <> '0/0' AND c.system_id <> e.system_id AS other_server,
           CASE WHEN s.database <> current_database() THEN s.database::text ELSE '' END AS elsewhere,
           coalesce(s.active AND s.confirmed_flush_lsn IS NULL, false) AS making, c.consistent_point = '0/0' AS never,
           c.changes_unchanged, c.changes_joined,
           -- From PostgreSQL 17 on, the server sends no change of a failover slot before the standbys have it.
           CASE WHEN (to_jsonb(s) ->> 'failover')::boolean THEN (
               SELECT string_agg(n.name, ', ')
               FROM   regexp_split_to_table(nullif(current_setting('synchronized_standby_slots', true), ''),
                          '[\s",]+') AS n (name)
               WHERE  n.name <> '' AND NOT EXISTS (SELECT FROM pg_replication_slots AS o
                          WHERE o.slot_name = n.name AND o.active)) END AS absent
    FROM   embedsidecar.lsn_checkpoint AS c
           CROSS JOIN (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
               ELSE pg_current_wal_lsn() END AS wal_end,
                              k.system_identifier::text AS system_id
                       FROM   pg_control_system() AS k) AS e
           LEFT JOIN pg_publication AS p ON p.pubname = c.publication
           LEFT JOIN pg_replication_slots AS s ON s.slot_name = c.slot_name
           LEFT JOIN pg_stat_activity AS a ON a.pid = s.active_pid
), seen AS (
    SELECT f.*, w.sidecars, w.streams, w.stuck, w.stuck_detail, w.reader, w.starts, w.quiet,
           f.making OR NOT f."exists" AND f.elsewhere = '' AND 'making' = ANY (w.streams) AS being_made,
           f.never AND NOT f."exists" AS unmade
    FROM   fact AS f CROSS JOIN LATERAL (
               SELECT coalesce(jsonb_agg(w.problems ORDER BY w.worker_id), '[]') AS sidecars,
                      coalesce(array_agg(w.stream), '{}') AS streams,
                      (array_agg(w.instance ORDER BY w.worker_id) FILTER (WHERE w.stream = 'stuck'))[1] AS stuck,
                      (array_agg(w.stream_detail
                          ORDER BY w.worker_id) FILTER (WHERE w.stream = 'stuck'))[1] AS stuck_detail,
                      (array_agg(w.instance
                          ORDER BY w.stream DESC) FILTER (WHERE w.stream IN ('streaming', 'starting')))[1] AS reader,
                      (array_agg(w.instance) FILTER (WHERE w.stream = 'starting'
                          AND w.started_at > now() - interval '5 s'))[1] AS starts,
                      (array_agg(w.instance || ' ' || w.stream_detail)
                          FILTER (WHERE w.stream = 'quiet'))[1] AS quiet
               FROM   embedsidecar.worker AS w
               WHERE  (w.slot_name = f.slot_name OR w.slot_name = '') AND embedsidecar.runs(w)) AS w
), whom AS (
    SELECT s.*, CASE WHEN s.being_made THEN
               (SELECT jsonb_agg(to_jsonb(b)) FROM (SELECT * FROM embedsidecar.blockers()
                   LIMIT 10) AS b) END AS waits_for
    FROM   seen AS s
), judged AS (
    SELECT w.*, CASE
           WHEN w.other_server OR w.elsewhere <> '' THEN 'copied'
           WHEN NOT w.publication_exists THEN 'unpublished'
           WHEN w.being_made OR w.unmade THEN 'slot_waiting'
           WHEN NOT w."exists" OR w.wal_status = 'lost' THEN 'slot_lost'
           WHEN w.streams = '{}' AND w.active THEN 'standby_only'
           WHEN w.streams = '{}' THEN 'no_sidecar'
           WHEN w.active AND 'streaming' = ANY (w.streams) THEN 'streaming'
           WHEN w.quiet IS NOT NULL AND NOT w.active THEN 'streaming' -- reads as soon as something changes
           WHEN w.starts IS NOT NULL AND w.stuck IS NULL AND NOT w.active THEN 'streaming' -- about to
           WHEN w.stuck IS NOT NULL OR w.reader IS NOT NULL AND NOT w.active THEN 'stream_stuck'
           WHEN w.reader IS NOT NULL THEN 'streaming' -- about to
           WHEN w.active THEN 'standby_only' ELSE 'no_sidecar' END AS state,
           coalesce(w.wal_status = 'unreserved' OR 3 * w.safe_wal_bytes < w.retained_bytes, false) AS ends_soon,
           coalesce(nullif(w.held_by, ''), 'another session') AS holder
    FROM   whom AS w
)
SELECT j.slot_name, j.publication, j.checkpoint, j.saved_at, j."exists", j.active, j.active_pid, j.held_by,
    j.wal_status,
       j.safe_wal_bytes, j.lag_bytes, j.retained_bytes, j.publication_exists, j.other_server, j.elsewhere, j.being_made,
       j.changes_unchanged, j.changes_joined, j.waits_for, j.sidecars,
       j."exists" AND NOT j.active AND j.wal_status <> 'lost' AND j.stuck IS NULL
           AND j.streams && '{streaming,starting,standby}'::text[],
       j.state,
       CASE WHEN j.state IN ('streaming', 'no_sidecar') THEN CASE WHEN j.ends_soon OR j.state = 'no_sidecar'
           OR j.absent IS NOT NULL THEN 'warn' ELSE 'ok' END
            ELSE 'error' END,
       CASE j.state
           WHEN 'copied' THEN CASE WHEN j.other_server
               THEN 'this server is not the one that was set up: the data was restored or copied elsewhere'
               ELSE format('slot %s belongs to database %s, and this database is a copy of it: slot names are unique '
                   'per server', j.slot_name, j.elsewhere) END
           WHEN 'unpublished' THEN format('the publication "%s" of slot %s does not exist, so changes are not seen',
               j.publication, j.slot_name)
           WHEN 'slot_waiting' THEN CASE WHEN j.being_made
               THEN format('slot %s is being created, and the server waits for %s', j.slot_name,
                   coalesce((SELECT string_agg(b ->> 'words', '; ') FROM jsonb_array_elements(j.waits_for) AS b),
                       'open transactions'))
               ELSE format('slot %s does not exist yet, so changes are not queued', j.slot_name)
                   || coalesce('; ' || j.stuck || ' cannot create it ' || j.stuck_detail, '') END
           WHEN 'slot_lost' THEN format(CASE
               WHEN j."exists" THEN 'slot %s is lost: the server has removed WAL that it needed'
               ELSE 'slot %s is gone, so changes are not seen' END, j.slot_name)
           WHEN 'standby_only' THEN format(CASE
               WHEN j.streams = '{}' THEN 'slot %s is held by %s, and no sidecar runs'
               ELSE 'every sidecar stands by, because slot %s is held by %s: changes are not queued' END, j.slot_name,
                   j.holder)
           WHEN 'no_sidecar' THEN format(CASE
               WHEN j.streams = '{}' THEN 'no sidecar runs for slot %s, and the server keeps WAL for it'
               ELSE 'no sidecar streams from slot %s, and the server keeps WAL for it' END, j.slot_name)
               || CASE WHEN j.streams = '{}' THEN coalesce((
                   SELECT format('; %s is connected: if it is a sidecar, its log says why it could not register',
                       min(a.application_name))
                   FROM   pg_stat_activity AS a
                   WHERE  a.datname = current_database() AND a.application_name LIKE 'embedsidecar/%'
                          AND a.application_name <> current_setting('application_name')
                          AND a.backend_start < clock_timestamp() - interval '2 s' -- commands come and go
                          AND NOT EXISTS (SELECT FROM embedsidecar.worker AS w
                              WHERE w.session_name = a.application_name AND embedsidecar.runs(w))
                   HAVING count(*) > 0), '') ELSE '' END
           WHEN 'stream_stuck' THEN CASE WHEN j.stuck IS NOT NULL THEN j.stuck || ' cannot stream ' || j.stuck_detail
               ELSE format('%s runs, but does not read slot %s', j.reader, j.slot_name) END
           ELSE coalesce(CASE WHEN NOT j.active THEN coalesce(j.quiet, j.starts || ' is about to stream it') END,
               'streamed by ' || j.holder) END
       || CASE WHEN j.ends_soon AND j.state IN ('streaming', 'no_sidecar', 'stream_stuck', 'standby_only')
               THEN format('; it is lost after %s more of WAL', pg_size_pretty(greatest(j.safe_wal_bytes, 0)))
               ELSE '' END
       || CASE WHEN j.state = 'streaming' THEN coalesce('; the server sends no changes while the standby of slot '
               || j.absent || ' is not connected (synchronized_standby_slots)', '') ELSE '' END,
       array_remove(ARRAY[CASE j.state
           WHEN 'copied' THEN CASE WHEN j.other_server
               THEN 'to use this copy on its own, run embedsidecar init --adopt with its pipelines configured: it '
                   'creates a new slot and compares every row'
               ELSE format('to use this copy on its own, run embedsidecar init --adopt --slot %s with its pipelines '
                   'configured: it creates this slot and compares every row',
                   left(regexp_replace(lower('embedsidecar_' || current_database()), '[^a-z0-9_]', '_', 'g'), 63)) END
           WHEN 'unpublished' THEN 'embedsidecar init creates it again'
           WHEN 'slot_waiting' THEN CASE WHEN j.being_made
               THEN 'let them end, or end them; until then changes are not queued'
               ELSE 'embedsidecar run creates it and compares every row' END
           WHEN 'slot_lost' THEN
               'embedsidecar run creates it again and compares every row; if on_lost is stop: embedsidecar run '
               '--set slot.on_lost=reconcile, once'
           WHEN 'standby_only' THEN CASE WHEN j.streams = '{}' THEN 'embedsidecar run' ELSE 'end it' END
           WHEN 'no_sidecar' THEN 'embedsidecar run'
           WHEN 'stream_stuck' THEN 'the log of the sidecar says why' END,
       CASE WHEN j.ends_soon OR j.wal_status = 'lost' THEN 'raise max_slot_wal_keep_size' END,
       CASE WHEN j.state = 'streaming' AND j.absent IS NOT NULL THEN 'start that standby, or remove its slot '
           'from synchronized_standby_slots' END], NULL),
       j.state IN ('copied', 'unpublished', 'slot_waiting', 'slot_lost', 'standby_only')
           OR j.lag_bytes > 0 AND (NOT j.active AND j.quiet IS NULL OR j.absent IS NOT NULL)
FROM   judged AS j
$$;
COMMENT ON FUNCTION embedsidecar.slot_states() IS
    'The slots with what is known of them and their state: streaming, or the state of their pipelines that follows '
    'from it.';

CREATE OR REPLACE FUNCTION embedsidecar.state_codes() RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$
SELECT '{copied,missing,misconfigured,unpublished,replaced,not_set_up,slot_waiting,slot_lost,paused,outside_hours,
    budget_spent,no_sidecar,stream_stuck,standby_only,disabled,plugin_unknown,plugin_down,other_model,failing,
    unacknowledged,configured_otherwise,scan_waiting,backfill,comparing,queue_held,working,rows_failed,rows_cancelled,
    up_to_date}'::text[]
$$;
COMMENT ON FUNCTION embedsidecar.state_codes() IS
    'The states of pipelines in the order in which they are checked: the first that applies is the state. From '
    'unacknowledged on rows are embedded.';

-- state_of: f has the facts of a pipeline and its slot from states().
CREATE OR REPLACE FUNCTION embedsidecar.state_of(f jsonb, OUT state text, OUT reason text, OUT hints text[])
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = auto AS $$
#variable_conflict use_column
DECLARE
    r       record;
    name    text;
    problem jsonb;
    waiting text;
BEGIN
    SELECT * INTO r FROM jsonb_to_record(f) AS (pipeline_id integer, pipeline text, table_schema text, table_name text,
        replaced_by text, dropped boolean,
        status text, status_detail text, switched_on boolean, itself_enabled boolean, paused_commands text,
            paused_sql text, is_open boolean, active_hours text, budgets jsonb,
        slot_name text, slot_state text, slot_reason text, slot_hints text[], sidecars jsonb, unrouted boolean,
            scan_phase text, scan_reason text,
        scan_first boolean, scan_seen bigint, scan_expected bigint, scan_rate double precision,
            scan_left double precision, blocked_by text, pending bigint, running bigint,
        retrying bigint, failed bigint, cancelled bigint, aside bigint, otherwise jsonb);
    name := embedsidecar.shell_word(r.pipeline);
    waiting := CASE WHEN r.pending + r.running + r.retrying > 0
        THEN ' (' || embedsidecar.rows_words(r.pending + r.running + r.retrying) || ' waiting)' ELSE '' END;
    IF r.status = 'not_set_up' THEN
        state := r.status;
        reason := r.status_detail;
        hints := ARRAY(SELECT jsonb_array_elements_text(r.otherwise -> 'hints'));
        RETURN;
    END IF;
    state := r.slot_state;
    reason := r.slot_reason;
    hints := r.slot_hints;
    IF state = 'copied' THEN RETURN; END IF;
    IF r.dropped OR r.replaced_by <> '' OR r.status NOT IN ('active', '') THEN
        hints := '{}';
        IF r.dropped THEN
            state := 'missing';
            reason := CASE WHEN r.replaced_by = '' THEN format('the source table %I.%I was dropped', r.table_schema,
                r.table_name)
                ELSE format('the source table was dropped, and %s is now another table, whose rows get no vectors',
                    r.replaced_by) END;
            hints := ARRAY[CASE WHEN r.replaced_by = ''
                THEN 'restore it: embedsidecar init, or the next run, then uses it; or remove the pipeline with '
                    'embedsidecar uninstall'
                ELSE 'embedsidecar init with the pipeline configured, or the next run, moves the pipeline to it' END];
        ELSIF r.status IN ('missing', 'misconfigured', 'unpublished') THEN
            state := r.status;
            reason := r.status_detail;
        ELSIF r.status NOT IN ('active', '') THEN
            state := 'misconfigured'; -- a code of a newer program
            reason := concat_ws(': ', r.status, nullif(r.status_detail, ''));
        ELSE
            state := 'replaced';
            reason :=
                format('its table is now called %I.%I, and %s is now another table, whose rows get no vectors',
                r.table_schema, r.table_name, r.replaced_by);
            hints :=
                ARRAY['rename the tables back; or embedsidecar init with the pipeline configured, or the next run, '
                'moves the pipeline to the new table'];
        END IF;
        IF r.replaced_by <> '' AND r.otherwise IS NOT NULL THEN -- why the new table is not used
            reason := reason || '; ' || (r.otherwise ->> 'reason');
            hints := ARRAY(SELECT jsonb_array_elements_text(r.otherwise -> 'hints'));
        END IF;
        RETURN;
    END IF;
    IF state IN ('unpublished', 'slot_waiting', 'slot_lost') THEN RETURN; END IF;
    IF NOT (r.switched_on AND r.itself_enabled) THEN
        state := 'paused';
        reason := 'paused: changes are queued, nothing is embedded' || waiting;
        hints := CASE WHEN r.switched_on THEN '{}'::text[]
            ELSE ARRAY['embedsidecar resume', 'SELECT embedsidecar.resume();'] END
            || CASE WHEN r.paused_commands IS NULL THEN '{}'::text[] ELSE ARRAY[r.paused_commands, r.paused_sql] END;
        RETURN;
    END IF;
    IF NOT r.is_open THEN
        state := 'outside_hours';
        reason := CASE WHEN r.active_hours = 'manual' THEN 'works only on request (active: manual)'
            ELSE 'outside of its hours (' || r.active_hours || ')' END || ': changes are queued, nothing is embedded'
                || waiting;
        hints := ARRAY['embedsidecar resume ' || name || ' --for 1h lets it work now',
            format('SELECT embedsidecar.resume(%L, ''1 hour'');', r.pipeline)];
        RETURN;
    END IF;
    IF r.budgets IS NOT NULL THEN -- this query costs more than all the rest: only if there are budgets
        SELECT string_agg(b ->> 'words', '; ' ORDER BY b ->> 'goes_on' DESC), array_agg(format('raise %s under budget '
                   'of %s %s in the configuration', b ->> 'spent', b ->> 'kind', b ->> 'name')) INTO reason, hints
        FROM   jsonb_array_elements(r.budgets) AS b WHERE b ->> 'spent' <> '';
        IF reason IS NOT NULL THEN
            state := 'budget_spent';
            reason := reason || '; until then changes are queued, nothing is embedded' || waiting;
            RETURN;
        END IF;
    END IF;
    reason := r.slot_reason;
    hints := r.slot_hints;
    IF state IN ('no_sidecar', 'stream_stuck', 'standby_only') THEN
        reason := reason || waiting;
        RETURN;
    END IF;
    -- The problem of every running sidecar; one without a problem is enough.
    IF NOT r.sidecars <@ '[{}]' THEN
        SELECT p.problem INTO problem FROM jsonb_array_elements(r.sidecars) AS s CROSS
            JOIN LATERAL (SELECT s -> r.pipeline_id::text) AS p (problem)
        ORDER BY p.problem IS NOT NULL, array_position(embedsidecar.state_codes(), p.problem ->> 'code') NULLS FIRST
            LIMIT 1;
    END IF;
    hints := '{}';
    IF problem ->> 'code' <> 'held' THEN -- a limit only delays the pipeline
        state := CASE WHEN problem ->> 'code' = ANY (embedsidecar.state_codes()) THEN problem ->> 'code'
            ELSE 'misconfigured' END;
        reason := (problem ->> 'detail') || waiting;
        hints := CASE state
            WHEN 'plugin_unknown' THEN
                ARRAY['add it to the configuration of the sidecar, or install it, then restart the sidecar']
            WHEN 'plugin_down' THEN
                ARRAY['embedsidecar check starts the plugin and shows more; docs/operations.md, The plugin is down']
            WHEN 'other_model' THEN
                ARRAY['start the sidecar with the previous model, or change the model: embedsidecar model change']
            WHEN 'failing' THEN ARRAY['embedsidecar tasks list --state failed --state retrying ' || name
                || ' shows the errors',
                format('SELECT * FROM embedsidecar.errors WHERE pipeline = %L;', r.pipeline)]
            WHEN 'disabled' THEN ARRAY['start a sidecar without enabled: false and without --role stream']
            ELSE '{}' END;
        RETURN;
    END IF;
    IF r.unrouted THEN
        state := 'unacknowledged';
        reason := 'the streaming sidecar has not loaded the current definition of the pipeline';
        hints := ARRAY['wait about 10 s'];
    ELSIF r.otherwise IS NOT NULL THEN
        state := 'configured_otherwise';
        reason := format('%s; the pipeline works as it is set up', r.otherwise ->> 'reason') || waiting;
        hints := ARRAY(SELECT jsonb_array_elements_text(r.otherwise -> 'hints'));
    ELSIF r.scan_phase = 'waiting' AND r.blocked_by IS NOT NULL THEN
        state := 'scan_waiting';
        reason := format('rows will be compared (%s) when older transactions have ended: %s', r.scan_reason,
            r.blocked_by);
        hints := ARRAY['let them end, or end them'];
    ELSIF r.scan_phase NOT IN ('done', '') THEN
        state := CASE WHEN r.scan_first THEN 'backfill' ELSE 'comparing' END;
        reason := format('%s (%s)', CASE WHEN r.scan_first THEN 'embeds the existing rows'
            ELSE 'compares every row' END, r.scan_reason)
            || CASE WHEN r.scan_phase = 'waiting' THEN ', about to begin'
                    WHEN r.scan_phase = 'orphans' THEN ', ' || embedsidecar.rows_words(r.scan_seen)
                        || ' done, now the vectors of deleted rows'
                    WHEN r.scan_expected <= 0 THEN ', ' || embedsidecar.rows_words(r.scan_seen) || ' done'
                    ELSE format(', %s of about %s %s', r.scan_seen,
                        embedsidecar.rows_words(greatest(r.scan_expected, r.scan_seen)),
                        CASE WHEN r.scan_first THEN 'embedded' ELSE 'done' END)
                        || CASE WHEN r.scan_rate > 0 THEN format(', %s/s', round(r.scan_rate)) ELSE '' END
                        || CASE WHEN r.scan_left > 0 THEN format(', about %s to go',
                            embedsidecar.age_words(r.scan_left)) ELSE '' END END;
    ELSIF r.aside > 0 THEN
        state := 'queue_held';
        reason := format('%s of its changes cannot be queued, because of %s%s', r.aside,
            coalesce(r.blocked_by, 'open transactions'), waiting);
        hints := ARRAY['let them end, or end them'];
    ELSIF r.retrying > 0 AND r.pending + r.running = 0 THEN
        state := 'working';
        reason := embedsidecar.rows_words(r.retrying)
            || ' wait for a retry, or for their scheduled time';
        hints := ARRAY['embedsidecar tasks list --state retrying ' || name || ' shows the errors',
            format('SELECT * FROM embedsidecar.errors WHERE pipeline = %L;', r.pipeline)];
    ELSIF waiting <> '' THEN
        state := 'working';
        reason := embedsidecar.rows_words(r.pending + r.running + r.retrying) || ' left to embed'
            || coalesce(', while its tables are locked by ' || r.blocked_by, '');
        hints := CASE WHEN r.blocked_by IS NOT NULL THEN ARRAY['let them end, or end them'] ELSE '{}' END;
    ELSIF r.failed > 0 THEN
        state := 'rows_failed';
        reason := embedsidecar.rows_words(r.failed) || ' could not be embedded';
        hints := ARRAY['embedsidecar tasks list --state failed ' || name
            || ' names them and their errors; fix the cause, then run embedsidecar tasks retry ' || name
            || ', or give up on them with embedsidecar tasks discard ' || name,
            format('SELECT * FROM embedsidecar.errors WHERE pipeline = %1$L; SELECT * FROM '
                'embedsidecar.retry_failed(%1$L);', r.pipeline)];
    ELSIF r.cancelled > 0 THEN
        state := 'rows_cancelled';
        reason := embedsidecar.rows_words(r.cancelled) || ' cancelled';
        hints := ARRAY['embedsidecar tasks list ' || name
            || ' --state cancelled names them, embedsidecar tasks requeue ' || name || ' queues them again',
            format('SELECT * FROM embedsidecar.requeue(%L);', r.pipeline)];
    ELSE
        state := 'up_to_date';
        reason := 'every known row has its vector';
    END IF;
    IF problem IS NOT NULL AND state IN ('backfill', 'comparing', 'working') THEN
        reason := reason || '; ' || (problem ->> 'detail');
    END IF;
END $$;
COMMENT ON FUNCTION embedsidecar.state_of(jsonb) IS
    'The state of a pipeline, the reason and what to do about it, from the facts that states() collects.';

-- states: cap is where exact counts of tasks end; one selects a single pipeline. found is what the catalog says now of
-- pipelines (status and detail, by pipeline_id): while no sidecar runs for a slot, the stored status may be old.
CREATE OR REPLACE FUNCTION embedsidecar.states(cap bigint DEFAULT 100000, found jsonb DEFAULT '{}',
    one integer DEFAULT NULL)
RETURNS TABLE (pipeline_id integer, pipeline text, slot_name name, table_schema text, table_name text, replaced_by text,
    dropped boolean, model text, plugin text,
    generation integer, enabled boolean, status text, status_detail text, pending bigint, running bigint,
        retrying bigint, failed bigint, cancelled bigint,
    oldest_seconds double precision, scan_phase text, scan_reason text, scan_seen bigint, scan_expected bigint,
        scan_rate double precision, scan_left double precision,
    unrouted boolean, sidecar_runs boolean, tokens_embedded bigint, texts_embedded bigint, texts_reused bigint,
        rows_unchanged bigint, rows_estimate bigint,
    is_open boolean, active_hours text, aside bigint, waits_for jsonb, checkpoint pg_lsn, state text, reason text,
        hints text[], works boolean, needs_act boolean,
    severity text, may_miss boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
WITH slot AS MATERIALIZED (
    SELECT * FROM embedsidecar.slot_states()
), otherwise AS MATERIALIZED (
    SELECT DISTINCT ON (c.slot_name, o.key) c.slot_name, o.key AS pipeline, o.value AS problem
    FROM   embedsidecar.configured AS c CROSS JOIN LATERAL jsonb_each(c.problems) AS o
    WHERE  embedsidecar.lives(c)
    ORDER BY c.slot_name, o.key, c.configured_id
), paused AS (
    SELECT string_agg(embedsidecar.shell_word(p.name), ' ' ORDER BY p.name) AS commands,
           string_agg(format('SELECT embedsidecar.resume(%L);', p.name), ' ' ORDER BY p.name) AS sql
    FROM   embedsidecar.pipeline AS p WHERE NOT p.enabled AND (states.one IS NULL OR p.pipeline_id = states.one)
), fact AS (
    SELECT p.pipeline_id, p.name AS pipeline, p.slot_name, coalesce(tn.nspname, p.table_schema)::text AS table_schema,
           coalesce(tc.relname, p.table_name)::text AS table_name, coalesce(
               -- The schema first: each tenant may have a table of this name.
               (SELECT format('%I.%I', p.table_schema, p.table_name)
                FROM  (SELECT n.oid FROM pg_namespace AS n WHERE n.nspname = p.table_schema OFFSET 0) AS n
                      CROSS JOIN LATERAL (SELECT c.oid FROM pg_class AS c
                          WHERE c.relname = p.table_name AND c.relnamespace = n.oid OFFSET 0) AS c
                WHERE c.oid <> p.table_oid), '') AS replaced_by,
           tc.oid IS NULL AS dropped, p.model, p.plugin, p.generation, i.enabled AS switched_on,
               p.enabled AS itself_enabled, o.now AS found,
           coalesce(o.now ->> 'status', p.status) AS status, CASE WHEN o.now IS NULL THEN p.status_detail
               ELSE o.now ->> 'detail' END AS status_detail,
           -- From the index alone, without regard to leases: a tenth of the time.
           (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'todo'
               AND t.pipeline_id = p.pipeline_id LIMIT states.cap + h.held) AS c) - h.held + a.aside AS pending,
           (SELECT coalesce(sum(cardinality(l.task_ids)), 0) FROM embedsidecar.lease AS l
            WHERE  l.pipeline_id = p.pipeline_id AND l.epoch = p.lease_epoch AND l.leased_until >= now()) AS running,
           (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'retrying'
               AND t.pipeline_id = p.pipeline_id LIMIT states.cap) AS c) AS retrying,
           (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'failed'
               AND t.pipeline_id = p.pipeline_id LIMIT states.cap) AS c) AS failed,
           (SELECT count(*) FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'cancelled'
               AND t.pipeline_id = p.pipeline_id LIMIT states.cap) AS c) AS cancelled,
           extract(epoch FROM now() - (SELECT min(t.committed_at) FROM unnest('{0,1,2,3}'::smallint[]) AS n (lane) CROSS
               JOIN LATERAL (
               (SELECT t.committed_at FROM embedsidecar.task AS t WHERE t.state = 'todo'
                   AND t.pipeline_id = p.pipeline_id AND t.lane = n.lane
                ORDER BY t.seq LIMIT few.rows)
               UNION ALL
               (SELECT t.committed_at FROM embedsidecar.task AS t WHERE t.state = 'retrying'
                   AND t.pipeline_id = p.pipeline_id AND t.lane = n.lane
                ORDER BY t.due_at LIMIT few.rows)) AS t))::double precision AS oldest_seconds,
           coalesce(s.phase, 'done') AS scan_phase, coalesce(s.reason, '') AS scan_reason,
               s.finished_at IS NULL AS scan_first,
           coalesce(s.gap AND s.finished_at IS NOT NULL, false) AS scan_gap, CASE WHEN s.phase = 'waiting' THEN 0
               ELSE coalesce(s.rows_seen, 0) END AS scan_compared,
           greatest(extract(epoch FROM now() - s.started_at), 1) AS scan_seconds,
           coalesce(nullif(s.rows_expected, 0), e.rows_estimate, 0) AS scan_expected,
           CASE WHEN s.phase = 'waiting'
               AND s.barrier > pg_snapshot_xmin(pg_current_snapshot()) THEN s.barrier END AS barrier,
           NOT EXISTS (SELECT FROM embedsidecar.route AS r WHERE r.pipeline_id = p.pipeline_id
               AND r.generation = p.generation) AS unrouted,
           coalesce(c.tokens_embedded, 0) AS tokens_embedded, coalesce(c.texts_embedded, 0) AS texts_embedded,
           coalesce(c.texts_reused, 0) AS texts_reused, coalesce(c.rows_unchanged, 0) AS rows_unchanged,
           e.rows_estimate,
           embedsidecar.is_open(p.active_minutes, p.active_zone, p.open_until) AS is_open, p.active_hours,
           CASE WHEN p.budget IS NOT NULL OR p.model_budget IS NOT NULL THEN (SELECT jsonb_agg(to_jsonb(b))
               FROM embedsidecar.budgets(p.pipeline_id) AS b) END AS budgets, a.aside,
           coalesce(z.state, 'slot_lost') AS slot_state,
               coalesce(z.reason, format('slot %s is not set up here', p.slot_name)) AS slot_reason,
           coalesce(z.hints, '{}') AS slot_hints, z.waits_for AS slot_waits_for, z.sidecars,
               coalesce(z.may_miss, true) AS slot_gap, z.checkpoint,
           'embedsidecar resume ' || u.commands AS paused_commands, u.sql AS paused_sql, w.problem AS otherwise
    FROM   embedsidecar.pipeline AS p
           CROSS JOIN embedsidecar.installation AS i
           CROSS JOIN paused AS u
           -- Reads the first few of each lane, the oldest except for re-queued ones; fewer if there are many pipelines.
           CROSS JOIN (SELECT CASE WHEN states.one IS NOT NULL THEN 100
               ELSE least(greatest(1000 / count(*), 4), 100) END AS rows FROM embedsidecar.pipeline) AS few
           CROSS JOIN LATERAL (SELECT count(DISTINCT t.task_id) AS held FROM embedsidecar.lease AS l
               CROSS JOIN LATERAL unnest(l.task_ids) AS u (task_id) JOIN embedsidecar.task AS t ON t.task_id = u.task_id
               WHERE l.pipeline_id = p.pipeline_id AND l.epoch = p.lease_epoch AND l.leased_until >= now()
                   AND t.state = 'todo' AND t.pipeline_id = p.pipeline_id) AS h
           CROSS JOIN LATERAL (SELECT count(*) AS aside FROM (SELECT FROM embedsidecar.aside AS a
               WHERE a.pipeline_id = p.pipeline_id LIMIT states.cap) AS c) AS a
           LEFT JOIN slot AS z ON z.slot_name = p.slot_name
           LEFT JOIN otherwise AS w ON w.slot_name = p.slot_name AND w.pipeline = p.name
           CROSS JOIN LATERAL (SELECT CASE WHEN z.sidecars IS NULL
               OR z.sidecars = '[]' THEN states.found -> p.pipeline_id::text END AS now) AS o
           LEFT JOIN embedsidecar.scan AS s ON s.pipeline_id = p.pipeline_id
           LEFT JOIN embedsidecar.spent AS c ON c.pipeline_id = p.pipeline_id
           LEFT JOIN pg_class AS tc ON tc.oid = p.table_oid
           LEFT JOIN pg_namespace AS tn ON tn.oid = tc.relnamespace
           -- By number, one at a time: otherwise the server reads all of pg_class for each pipeline.
           CROSS JOIN LATERAL (SELECT CASE tc.relkind WHEN 'r' THEN greatest(tc.reltuples, 0)::bigint WHEN 'p' THEN
               (SELECT greatest(sum(c.reltuples), 0)::bigint FROM pg_partition_tree(p.table_oid) AS t
                CROSS JOIN LATERAL (SELECT c.reltuples FROM pg_class AS c WHERE c.oid = t.relid
                    AND c.relkind = 'r' OFFSET 0) AS c) ELSE 0 END AS rows_estimate) AS e
    WHERE  states.one IS NULL OR p.pipeline_id = states.one
), far AS (
    -- A compared row that still waits to be embedded is not done.
    SELECT f.*, d.scan_seen,
           (CASE WHEN f.scan_phase = 'rows' THEN d.scan_seen / f.scan_seconds ELSE 0 END)::double precision AS scan_rate
    FROM   fact AS f CROSS JOIN LATERAL (
        SELECT CASE WHEN f.scan_phase = 'done' THEN f.scan_compared
            ELSE greatest(f.scan_compared - f.pending - f.running - f.retrying, 0) END AS scan_seen) AS d
), holder AS MATERIALIZED ( -- evaluated only if needed, and once for all
    SELECT * FROM embedsidecar.holders(NULL, '{ShareLock,ShareRowExclusiveLock,ExclusiveLock,AccessExclusiveLock}')
), whom AS (
    SELECT f.*, CASE WHEN f.scan_rate > 0
        AND f.scan_expected > f.scan_seen THEN round((f.scan_expected - f.scan_seen) / f.scan_rate)
        ELSE 0 END AS scan_left,
           CASE WHEN f.slot_state = 'slot_waiting' THEN f.slot_waits_for
                WHEN f.barrier IS NOT NULL THEN (SELECT jsonb_agg(to_jsonb(b))
                    FROM (SELECT * FROM embedsidecar.blockers(f.barrier) LIMIT 10) AS b)
                WHEN f.aside > 0 THEN (SELECT jsonb_agg(to_jsonb(b)) FROM (SELECT * FROM embedsidecar.queue_holders()
                    LIMIT 10) AS b)
                -- Rows in work for longer than a call: the source cannot be read, or the vectors cannot be written.
                WHEN f.running > 0 AND f.oldest_seconds > 5 THEN (SELECT jsonb_agg(to_jsonb(b)) FROM (
                    SELECT DISTINCT h.pid, h.gid, h.database, h.role, h.application, h.state, h.age_seconds, h.words
                    FROM   embedsidecar.pipeline AS p JOIN holder AS h ON
                        h.relation = p.table_oid
                            AND (h.mode = 'AccessExclusiveLock' OR p.destination_column IS NOT NULL)
                        OR h.relation = (SELECT c.oid FROM (SELECT n.oid FROM pg_namespace AS n
                               WHERE n.nspname = p.destination_schema OFFSET 0) AS n CROSS JOIN LATERAL
                               (SELECT c.oid FROM pg_class AS c WHERE c.relname = p.destination_table
                                   AND c.relnamespace = n.oid OFFSET 0) AS c)
                    WHERE  p.pipeline_id = f.pipeline_id LIMIT 10) AS b) END AS waits_for
    FROM   far AS f
), told AS (
    SELECT w.*, (SELECT string_agg(b ->> 'words', '; ') FROM jsonb_array_elements(w.waits_for) AS b) AS blocked_by
        FROM whom AS w
)
SELECT t.pipeline_id, t.pipeline, t.slot_name, t.table_schema, t.table_name, t.replaced_by, t.dropped, t.model,
    t.plugin, t.generation,
       t.switched_on AND t.itself_enabled, t.status, t.status_detail, t.pending, t.running, t.retrying, t.failed,
           t.cancelled, t.oldest_seconds,
       t.scan_phase, t.scan_reason, t.scan_seen, t.scan_expected, t.scan_rate, t.scan_left, t.unrouted,
           coalesce(t.sidecars <> '[]', false), t.tokens_embedded,
       t.texts_embedded, t.texts_reused, t.rows_unchanged, t.rows_estimate, t.is_open, t.active_hours, t.aside,
           t.waits_for, t.checkpoint, s.state, s.reason, s.hints,
       w.works, w.needs_act, CASE WHEN w.needs_act AND NOT w.works
           AND s.state NOT IN ('paused', 'budget_spent', 'no_sidecar') THEN 'error'
           WHEN w.needs_act OR NOT w.works
               OR s.state IN ('configured_otherwise', 'scan_waiting', 'queue_held', 'rows_cancelled') THEN 'warn'
               ELSE 'ok' END,
       t.scan_gap OR t.slot_gap OR s.state = 'unpublished'
FROM   told AS t
       CROSS JOIN LATERAL embedsidecar.state_of(to_jsonb(t)) AS s
       CROSS JOIN LATERAL (SELECT array_position(embedsidecar.state_codes(),
           s.state) >= array_position(embedsidecar.state_codes(), 'unacknowledged') AS works) AS v
       CROSS JOIN LATERAL (SELECT v.works, CASE WHEN v.works THEN s.state = 'rows_failed'
           ELSE s.state NOT IN ('slot_waiting', 'outside_hours')
               AND (s.state <> 'budget_spent' OR t.budgets @> '[{"goes_on": "infinity"}]') END AS needs_act) AS w
UNION ALL
-- Pipelines that a sidecar is configured with but could not set up have no number and no figures.
SELECT 0, o.pipeline, o.slot_name, o.problem ->> 'table_schema', o.problem ->> 'table_name', '', false,
    o.problem ->> 'model', o.problem ->> 'plugin', 0, true, 'not_set_up', o.problem ->> 'reason', 0, 0, 0, 0, 0, NULL,
    'done', '', 0, 0, 0, 0, true, true, 0, 0, 0, 0, 0, true, '', 0, NULL, NULL, s.state, s.reason, s.hints, false, true,
    'error', false
FROM   otherwise AS o CROSS JOIN LATERAL embedsidecar.state_of(jsonb_build_object('pipeline', o.pipeline,
           'status', 'not_set_up', 'status_detail', o.problem ->> 'reason', 'otherwise', o.problem)) AS s
WHERE  states.one IS NULL AND NOT EXISTS (SELECT FROM embedsidecar.pipeline AS p WHERE p.name = o.pipeline)
ORDER BY 2
$$;
COMMENT ON FUNCTION embedsidecar.states(bigint, jsonb, integer) IS
    'The state of each pipeline, the reason, what to do about it, and the figures. None of your tables is counted.';

-- The next two are called for each pipeline, like state_of. They keep their plans, though the program's sessions plan
-- each statement again.
CREATE OR REPLACE FUNCTION embedsidecar.search_costs(pipeline_id integer, OUT tokens bigint,
    OUT price double precision)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = auto AS $$
    SELECT coalesce(sum(c.search_tokens), 0)::bigint, coalesce(sum(c.search_price), 0) FROM embedsidecar.spent AS c
    WHERE c.pipeline_id = search_costs.pipeline_id
$$;
COMMENT ON FUNCTION embedsidecar.search_costs(integer) IS
    'Tokens of a pipeline''s queries, and of the texts that rerankers scored for it, and their price.';

CREATE OR REPLACE FUNCTION embedsidecar.texts_cut(pipeline_id integer) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = auto AS $$
    SELECT coalesce((SELECT c.texts_cut FROM embedsidecar.spent AS c
        WHERE c.pipeline_id = texts_cut.pipeline_id), 0)
$$;
COMMENT ON FUNCTION embedsidecar.texts_cut(integer) IS
    'How many texts of a pipeline were embedded without their ends, because they are longer than its model reads.';

CREATE OR REPLACE FUNCTION embedsidecar.joined_tables(joins jsonb) RETURNS TABLE (oid oid, uses text[])
LANGUAGE sql IMMUTABLE STRICT AS $$
SELECT (j ->> 'oid')::oid, array_agg(DISTINCT u.name)
FROM   jsonb_path_query(joins, 'strict $[*] ? (exists(@.oid))') AS top
       CROSS JOIN LATERAL (SELECT top UNION ALL
           SELECT jsonb_array_elements(coalesce(top -> 'joins', '[]'))) AS all_of (j)
       LEFT JOIN LATERAL jsonb_array_elements_text(j -> 'uses') AS u (name) ON true
GROUP  BY 1
$$;
COMMENT ON FUNCTION embedsidecar.joined_tables(jsonb) IS
    'The tables that a pipeline joins, and the columns of them that matter.';
