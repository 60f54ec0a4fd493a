-- How much of the history is kept. Its partitions are written in turn, and the oldest is emptied before it is written
-- again. A turn ends after a sixth of the time or of the rows that are kept, or a seventh of the bytes.

CREATE OR REPLACE FUNCTION embedsidecar.prune_history(keep interval, most_rows bigint, most_bytes bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- The minimum size of a row: with fewer bytes there are fewer rows, and counting is unnecessary.
    row_bytes constant integer := 80;
    t     embedsidecar.history_turn;
    sizes bigint[] := ARRAY(SELECT pg_relation_size(format('embedsidecar.history_%s', i)::regclass)
                            FROM generate_series(0, 7) AS i ORDER BY i);
    may   boolean := (SELECT sum(s) FROM unnest(sizes) AS s) / row_bytes > most_rows;
    b     integer;
    part  regclass;
    n     bigint;
    rows  bigint := 0; -- in newer partitions
    bytes bigint := 0;
    newest timestamptz;
BEGIN
    PERFORM set_config('lock_timeout', '2s', true); -- others queue behind this lock while a session reads the partition
    SELECT h.* INTO t FROM embedsidecar.history_turn AS h FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN -- another sidecar does it
        RETURN;
    END IF;
    b := t.bucket + 1;
    IF sizes[b] > 0 AND (now() - t.began_at >= keep / 6 OR sizes[b] >= most_bytes / 7
           OR sizes[b] / row_bytes >= most_rows / 6 AND
              embedsidecar.history_rows(format('embedsidecar.history_%s', t.bucket)) >= most_rows / 6) THEN
        EXECUTE format('SELECT max(h.finished_at) FROM embedsidecar.history_%s AS h', t.bucket) INTO newest;
        t.ended_at[b] := newest;
        t.began_at := now();
        t.bucket := b % 8;
        b := t.bucket + 1;
        IF sizes[b] > 0 THEN
            EXECUTE format('TRUNCATE embedsidecar.history_%s', t.bucket);
            sizes[b] := 0;
        END IF;
        UPDATE embedsidecar.history_turn AS h
        SET    bucket = t.bucket, began_at = t.began_at, ended_at = t.ended_at;
    END IF;
    FOR age IN 0..7 LOOP
        b := (t.bucket - age + 8) % 8 + 1;
        CONTINUE WHEN sizes[b] = 0;
        part := format('embedsidecar.history_%s', b - 1);
        bytes := bytes + pg_total_relation_size(part);
        IF age > 0 AND t.ended_at[b] < now() - keep OR bytes > most_bytes OR rows >= most_rows THEN
            EXECUTE format('TRUNCATE %s', part);
        ELSIF may THEN
            n := embedsidecar.history_rows(part);
            IF rows + n > most_rows THEN
                EXECUTE format('DELETE FROM %1$s WHERE finished_at <= (SELECT h.finished_at FROM %1$s AS h '
                    'ORDER BY h.finished_at DESC OFFSET $1 LIMIT 1)', part) USING most_rows - rows;
            END IF;
            rows := rows + n;
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION embedsidecar.prune_history IS
    'For sidecars: deletes the oldest history: what is older than keep (at most a sixth of it later), and what '
    'exceeds a number of rows or bytes.';

CREATE OR REPLACE FUNCTION embedsidecar.history_rows(part regclass) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    share double precision := least(100, 100.0 * 200 * current_setting('block_size')::integer
                                         / greatest(pg_relation_size(part), 1));
    n     bigint;
BEGIN
    EXECUTE format('SELECT count(*) FROM %s TABLESAMPLE SYSTEM (%s)', part, share) INTO n;
    RETURN n * 100 / share;
END $$;
COMMENT ON FUNCTION embedsidecar.history_rows IS
    'How many rows a partition of history has; above about 200 blocks, estimated from a sample of as many.';

-- Oldest partitions first: a further portion does not read again what stays.
CREATE OR REPLACE FUNCTION embedsidecar.clear_history(pipeline text DEFAULT NULL, older_than interval DEFAULT NULL,
    max_rows integer DEFAULT 10000, dry_run boolean DEFAULT false, said_by text DEFAULT NULL,
    continues bigint DEFAULT NULL, OUT changed bigint, OUT remaining bigint, OUT audit_id bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    id    integer := CASE WHEN clear_history.pipeline IS NOT NULL
                          THEN embedsidecar.pipeline_meant(clear_history.pipeline) END;
    entry embedsidecar.audit_log := embedsidecar.begin_action('clear_history', id,
              jsonb_build_object('older_than', clear_history.older_than), clear_history.said_by,
              clear_history.dry_run, clear_history.continues, clear_history.max_rows);
    until timestamptz := coalesce(entry.acted_at, clock_timestamp()) - coalesce(clear_history.older_than, '0');
    b     integer := (SELECT h.bucket FROM embedsidecar.history_turn AS h);
    n     bigint;
BEGIN
    IF clear_history.older_than < '0' THEN
        RAISE EXCEPTION 'clear_history: older_than: expected a time that is not negative, not %',
            clear_history.older_than USING ERRCODE = 'invalid_parameter_value';
    END IF;
    changed := 0;
    FOR i IN 1..8 LOOP
        EXIT WHEN clear_history.dry_run;
        EXECUTE format('DELETE FROM embedsidecar.history_%1$s WHERE ctid = ANY (ARRAY('
            'SELECT h.ctid FROM embedsidecar.history_%1$s AS h WHERE ($1 IS NULL OR h.pipeline_id = $1) '
            'AND h.finished_at <= $2 LIMIT $3))', (b + i) % 8) USING id, until, clear_history.max_rows - changed;
        GET DIAGNOSTICS n = ROW_COUNT;
        changed := changed + n;
    END LOOP;
    IF NOT clear_history.dry_run THEN
        audit_id := entry.audit_id;
        PERFORM embedsidecar.end_action(audit_id, 'history_cleared', changed);
    END IF;
    IF clear_history.continues IS NULL OR changed = 0 THEN
        remaining := (SELECT count(*) FROM embedsidecar.history AS h
                      WHERE (id IS NULL OR h.pipeline_id = id) AND h.finished_at <= until);
    END IF;
END $$;
COMMENT ON FUNCTION embedsidecar.clear_history IS
    'Deletes the history of finished tasks: of a pipeline, or of all, removed ones included; of tasks that ended '
    'longer ago than older_than, or of all. Deletes at most max_rows and returns how many remain; with dry_run it '
    'only counts these.';

-- Entries are ordered by partition, end and key: after a cursor, newer partitions are not read. If the cursor's
-- partition was emptied since, so were all older ones. Entries that they hold then are newer than the cursor and are
-- left out; ten minutes are more than a write-back takes.
CREATE OR REPLACE FUNCTION embedsidecar.finished(pipelines text[] DEFAULT NULL, row_keys text[] DEFAULT NULL,
    code text DEFAULT NULL, older_than interval DEFAULT NULL, after text DEFAULT NULL, max_rows integer DEFAULT 100)
RETURNS TABLE (pipeline text, row_key text, outcome text, attempt integer, error_code text, committed_at timestamptz,
    created_at timestamptz, scheduled_at timestamptz, started_at timestamptz, finished_at timestamptz, worked_by text,
    cursor text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    newest integer := (SELECT t.bucket FROM embedsidecar.history_turn AS t);
    ids    integer[] := ARRAY(SELECT p.pipeline_id FROM embedsidecar.pipeline AS p
                              WHERE finished.pipelines IS NULL OR p.name = ANY (finished.pipelines));
    c      text[] := regexp_match(finished.after, '^([0-7])\.(\d{1,17})\.(\d{1,9})\.(.*)$');
    ended  timestamptz := 'epoch'::timestamptz + c[2]::bigint * interval '1 microsecond';
    age    integer := coalesce((newest - c[1]::integer + 8) % 8, 0);
    rest   integer := finished.max_rows;
    n      integer;
BEGIN
    IF finished.after IS NOT NULL AND c IS NULL THEN
        RAISE EXCEPTION 'finished: after: % is not the cursor of a finished task', quote_literal(finished.after)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'give the cursor of the last task of the page before';
    END IF;
    WHILE age < 8 AND rest > 0 LOOP
        RETURN QUERY
        SELECT p.name, h.row_key, h.outcome, h.attempt::integer, h.error_code, h.committed_at, h.created_at,
               h.scheduled_at, h.finished_at - make_interval(secs => h.took_ms / 1000.0), h.finished_at, w.instance,
               concat_ws('.', h.bucket, (extract(epoch FROM h.finished_at) * 1000000)::bigint, h.pipeline_id, h.row_key)
        FROM  (SELECT h.* FROM embedsidecar.history AS h
               WHERE  h.bucket = ((newest - age + 8) % 8)::smallint AND h.pipeline_id = ANY (ids)
                      AND (finished.row_keys IS NULL OR h.row_key = ANY (finished.row_keys))
                      AND (finished.code IS NULL OR h.error_code = finished.code)
                      AND (finished.older_than IS NULL OR h.finished_at < now() - finished.older_than)
                      AND (c IS NULL OR CASE WHEN h.bucket = c[1]::smallint THEN h.finished_at < ended
                               OR h.finished_at = ended
                                  AND (h.pipeline_id, h.row_key) > (c[3]::integer, c[4] COLLATE "C")
                           ELSE h.finished_at < ended + interval '10 min' END)
               ORDER  BY h.finished_at DESC, h.pipeline_id, h.row_key LIMIT rest) AS h
               JOIN embedsidecar.pipeline AS p ON p.pipeline_id = h.pipeline_id
               LEFT JOIN embedsidecar.worker AS w ON w.worker_id = h.worker_id
        ORDER  BY h.finished_at DESC, h.pipeline_id, h.row_key;
        GET DIAGNOSTICS n = ROW_COUNT;
        rest := rest - n;
        age := age + 1;
    END LOOP;
END $$;
COMMENT ON FUNCTION embedsidecar.finished IS
    'A page of the history: finished tasks of pipelines, or of all, newest first, after a cursor. Later pages cost no '
    'more than the first.';
