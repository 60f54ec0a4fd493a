-- Facts, each with what mends it. Which of them is the state of a pipeline judges embedsidecar status.
CREATE OR REPLACE VIEW embedsidecar.health AS
SELECT 'switch' AS "check", 'all pipelines' AS subject, CASE WHEN i.enabled THEN 'ok' ELSE 'warn' END AS status,
       CASE WHEN i.enabled THEN 'on' ELSE 'paused: changes are queued, nothing is embedded' END AS detail,
       CASE WHEN NOT i.enabled THEN 'SELECT embedsidecar.resume();' END AS hint
FROM   embedsidecar.installation AS i
UNION ALL
SELECT 'slot', s.slot_name::text,
       CASE WHEN NOT s.exists OR s.wal_status = 'lost' OR s.other_server OR NOT s.publication_exists THEN 'error'
            WHEN NOT s.active OR s.wal_status = 'unreserved' THEN 'warn' ELSE 'ok' END,
       CASE WHEN s.other_server THEN 'was set up on another server: the data was restored or copied'
            WHEN NOT s.exists THEN 'does not exist: changes are not seen'
            WHEN s.wal_status = 'lost' THEN 'is lost: the server removed WAL that it needed'
            WHEN NOT s.publication_exists THEN 'its publication ' || s.publication || ' does not exist: changes are not seen'
            WHEN s.wal_status = 'unreserved' THEN 'is about to be lost: it keeps ' || pg_size_pretty(s.retained_bytes) || ' of WAL'
            WHEN NOT s.active THEN 'nobody streams it; it keeps ' || pg_size_pretty(s.retained_bytes) || ' of WAL'
            ELSE 'streamed, ' || pg_size_pretty(s.lag_bytes) || ' behind' END,
       CASE WHEN s.other_server THEN '-- embedsidecar init --adopt, with the pipelines configured'
            WHEN NOT s.exists OR s.wal_status = 'lost' THEN '-- embedsidecar run makes it anew and compares every row'
            WHEN NOT s.publication_exists THEN '-- embedsidecar init makes it again'
            WHEN s.wal_status = 'unreserved' THEN 'ALTER SYSTEM SET max_slot_wal_keep_size = ''-1''; SELECT pg_reload_conf();'
            WHEN NOT s.active THEN 'SELECT * FROM embedsidecar.workers; -- if none runs: embedsidecar run' END
FROM   embedsidecar.slots AS s
UNION ALL
SELECT 'sidecar', c.slot_name::text, CASE WHEN n.running > 0 THEN 'ok' ELSE 'error' END,
       CASE WHEN n.running > 0 THEN n.running || ' running' ELSE 'none runs: changes wait in the slot' END, CASE WHEN n.running = 0 THEN '-- embedsidecar run' END
FROM   embedsidecar.lsn_checkpoint AS c
       CROSS JOIN LATERAL (SELECT count(*) AS running FROM embedsidecar.workers AS w WHERE w.slot_name = c.slot_name AND w.runs) AS n
UNION ALL
SELECT 'stream', w.instance, CASE WHEN w.stream = 'stuck' THEN 'error' ELSE 'ok' END, concat_ws(': ', w.stream, nullif(w.stream_detail, '')),
       CASE WHEN w.stream = 'stuck' THEN 'SELECT * FROM pg_replication_slots;' END
FROM   embedsidecar.workers AS w WHERE w.runs
UNION ALL
SELECT 'definition', p.name, CASE WHEN p.status = 'active' THEN 'ok' ELSE 'error' END, concat_ws(': ', p.status, nullif(p.status_detail, '')),
       CASE WHEN p.status <> 'active' THEN '-- embedsidecar check tells what to do' END
FROM   embedsidecar.pipeline AS p
UNION ALL
SELECT 'paused', p.name, 'warn', 'paused: changes are queued, nothing is embedded', format('SELECT embedsidecar.resume(%L);', p.name)
FROM   embedsidecar.pipeline AS p WHERE NOT p.enabled
UNION ALL
SELECT 'hours', p.name, 'warn', CASE WHEN p.active_hours = 'manual' THEN 'works only when somebody asks' ELSE 'outside of its hours (' || p.active_hours || ')' END
       || ': changes are queued, nothing is embedded', format('SELECT embedsidecar.resume(%L, ''1 hour'');', p.name)
FROM   embedsidecar.pipeline AS p WHERE p.enabled AND NOT embedsidecar.is_open(p.active_minutes, p.active_zone, p.open_until)
UNION ALL
SELECT 'embedder', p.name, 'error', w.instance || ': ' || concat_ws(': ', o.problem ->> 'code', o.problem ->> 'detail'),
       format('SELECT * FROM embedsidecar.errors WHERE pipeline = %L;', p.name)
FROM   embedsidecar.pipeline AS p
       JOIN embedsidecar.workers AS w ON w.slot_name = p.slot_name AND w.runs
       CROSS JOIN LATERAL (SELECT w.problems -> p.pipeline_id::text AS problem) AS o
WHERE  o.problem IS NOT NULL
UNION ALL
SELECT 'dead letters', p.name, CASE WHEN n.rows > 0 THEN 'warn' ELSE 'ok' END,
       CASE WHEN n.rows > 0 THEN n.rows || ' could not be embedded' ELSE 'none' END,
       CASE WHEN n.rows > 0 THEN format('SELECT * FROM embedsidecar.errors WHERE pipeline = %1$L; SELECT * FROM embedsidecar.retry_failed(%1$L);', p.name) END
FROM   embedsidecar.pipeline AS p
       CROSS JOIN LATERAL (SELECT count(*) AS rows FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'failed' AND t.pipeline_id = p.pipeline_id LIMIT 100000) AS c) AS n
UNION ALL
SELECT 'aside', p.name, 'warn', n.rows || ' changes wait, because somebody''s open transaction holds the queue: ' || coalesce(
           (SELECT string_agg(concat_ws(', ', 'pid ' || h.pid, a.usename, nullif(a.application_name, ''), a.state || ' for ' || round(extract(epoch FROM now() - a.xact_start)) || ' s'), '; ')
            FROM (SELECT DISTINCT l.pid FROM pg_locks AS l
                  WHERE l.relation IN ('embedsidecar.task'::regclass, 'embedsidecar.scan'::regclass) AND l.granted AND l.mode NOT IN ('AccessShareLock', 'RowShareLock')) AS h
                 JOIN pg_stat_activity AS a ON a.pid = h.pid AND a.pid <> pg_backend_pid()
            WHERE NOT EXISTS (SELECT FROM embedsidecar.worker AS w WHERE w.session_name = a.application_name AND w.session_name <> '')), 'nobody who can be seen'),
       'let it end, or end it: SELECT pg_terminate_backend(...);'
FROM   embedsidecar.pipeline AS p
       CROSS JOIN LATERAL (SELECT embedsidecar.set_aside(p.pipeline_id) AS rows OFFSET 0) AS n
WHERE  n.rows > 0
UNION ALL
SELECT 'cancelled', p.name, 'warn', n.rows || ' were taken out of the queue', format('SELECT * FROM embedsidecar.requeue(%L);', p.name)
FROM   embedsidecar.pipeline AS p
       CROSS JOIN LATERAL (SELECT count(*) AS rows FROM (SELECT FROM embedsidecar.task AS t WHERE t.state = 'cancelled' AND t.pipeline_id = p.pipeline_id LIMIT 100000) AS c) AS n
WHERE  n.rows > 0;
COMMENT ON VIEW embedsidecar.health IS 'What is right and what is not, with what mends it. The state of a pipeline in a word is embedsidecar status''s to say.';
COMMENT ON COLUMN embedsidecar.health."check" IS 'What was looked at.';
COMMENT ON COLUMN embedsidecar.health.subject IS 'The pipeline, slot or sidecar.';
COMMENT ON COLUMN embedsidecar.health.status IS 'ok, warn or error.';
COMMENT ON COLUMN embedsidecar.health.detail IS 'In words.';
COMMENT ON COLUMN embedsidecar.health.hint IS 'SQL to run, or a comment with the command; NULL: nothing to do.';
