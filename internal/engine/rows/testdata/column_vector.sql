-- read
SELECT k.place, f.row_key, f.keep, CASE WHEN (sum(octet_length(f.body)) OVER (ORDER BY k.place) <= $3::bigint OR pg_client_encoding() = 'SQL_ASCII') THEN f.body END, CASE WHEN NOT (btrim(left(f.body, 100), E' \t\n\f\r\x0b') = '' AND btrim(f.body, E' \t\n\f\r\x0b') = '') THEN octet_length(f.body) END, CASE WHEN NOT (sum(octet_length(f.body)) OVER (ORDER BY k.place) <= $3::bigint OR pg_client_encoding() = 'SQL_ASCII') THEN sha256(convert_to(f.body, pg_client_encoding()::name)) END, NULL::bytea, NULL::text, f.source, l.source_hash, l.text_hash, l.norm_hash, l.vector_hash, l.generation, l.version, l.adopted, l.skipped, l.skipped_at, f.stored, NULL::integer
FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[])) WITH ORDINALITY AS k (k1, row_key, place)
LEFT JOIN LATERAL (SELECT (format('%s', r."id") COLLATE pg_catalog."C") AS row_key, true AS keep, ''::bytea || CASE WHEN num_nulls(r."title") = 1 THEN decode(repeat('00', 16), 'hex') ELSE substr(sha256(convert_to(format('%s', r."title"), pg_client_encoding()::name)), 1, 16) END || CASE WHEN num_nulls(r."body") = 1 THEN decode(repeat('00', 16), 'hex') ELSE substr(sha256(convert_to(format('%s', r."body"), pg_client_encoding()::name)), 1, 16) END AS source, CASE WHEN true THEN left(pg_catalog.concat_ws(E'\n\n', nullif(r."title"::text, ''), nullif(r."body"::text, '')), 1048576) END AS body, r."embedding" AS stored
  FROM ONLY "public"."docs" AS r
  WHERE r."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint)
  LIMIT 1) AS f ON true
LEFT JOIN LATERAL (SELECT g.source_hash, g.text_hash, g.norm_hash, g.vector_hash, g.generation, g.xmin::text AS version, CASE WHEN g.lsn = '0/0' THEN extract(epoch
    FROM g.written_at)::bigint END AS adopted, g.skipped, CASE WHEN g.skipped IS NOT NULL THEN g.lsn END AS skipped_at
  FROM embedsidecar.ledger AS g
  WHERE g.pipeline_id = 7 AND g.row_key = k.row_key OFFSET 0) AS l ON true
WHERE true AND CASE WHEN '"public"."docs"'::pg_catalog.regclass::oid = 16401 THEN true ELSE (text 'embedsidecar.table_of_another_name')::pg_catalog.regclass IS NULL END
ORDER BY k.place;

-- screen
WITH epoch AS MATERIALIZED (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS top, pg_current_snapshot() AS snapshot, (SELECT c.saved_at::text
    FROM embedsidecar.lsn_checkpoint AS c
    WHERE c.slot_name = (SELECT p.slot_name
      FROM embedsidecar.pipeline AS p
      WHERE p.pipeline_id = 7)) AS checkpoint, EXISTS (SELECT
    FROM embedsidecar.pipeline AS p
    CROSS JOIN embedsidecar.installation AS a
    WHERE p.pipeline_id = 7 AND p.generation = 4 AND p.enabled AND a.enabled AND embedsidecar.is_open(p.active_minutes, p.active_zone, p.open_until) AND embedsidecar.has_budget(p.budget, p.model_budget, p.pipeline_id)) AS open), judged AS MATERIALIZED (SELECT k.*, e.checkpoint, (k.xid = 0 OR pg_visible_in_snapshot((e.top - ((e.top - k.xid + 2147483648) & 4294967295) + 2147483648)::text::xid8, e.snapshot)) AS visible, CASE WHEN NOT (k.xid = 0 OR pg_visible_in_snapshot((e.top - ((e.top - k.xid + 2147483648) & 4294967295) + 2147483648)::text::xid8, e.snapshot)) OR NOT e.open OR EXISTS (SELECT
    FROM embedsidecar.task AS t
    WHERE t.pipeline_id = 7 AND t.row_key = k.row_key OFFSET 0) THEN 'task' ELSE coalesce((SELECT CASE WHEN g.xmin::text::bigint = k.xid THEN 'own' ELSE 'drop' END
      FROM embedsidecar.ledger AS g
      WHERE g.pipeline_id = 7 AND g.row_key = k.row_key AND g.source_hash || g.vector_hash LIKE k.pattern AND g.generation = 4), 'now') END AS verdict
  FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[]), pg_catalog.unnest($3::bigint[]), pg_catalog.unnest($4::bytea[])) WITH ORDINALITY AS k (k1, row_key, xid, pattern, place)
  CROSS JOIN epoch AS e)
SELECT k.place, f.row_key, f.keep, CASE WHEN (sum(octet_length(f.body)) OVER (ORDER BY k.place) <= $5::bigint OR pg_client_encoding() = 'SQL_ASCII') THEN f.body END, CASE WHEN NOT (btrim(left(f.body, 100), E' \t\n\f\r\x0b') = '' AND btrim(f.body, E' \t\n\f\r\x0b') = '') THEN octet_length(f.body) END, CASE WHEN NOT (sum(octet_length(f.body)) OVER (ORDER BY k.place) <= $5::bigint OR pg_client_encoding() = 'SQL_ASCII') THEN sha256(convert_to(f.body, pg_client_encoding()::name)) END, NULL::bytea, NULL::text, f.source, l.source_hash, l.text_hash, l.norm_hash, l.vector_hash, l.generation, l.version, l.adopted, l.skipped, l.skipped_at, f.stored, NULL::integer, k.verdict, k.visible, CASE WHEN f.body IS NOT NULL THEN EXISTS (SELECT
  FROM embedsidecar.ledger AS g
  WHERE g.text_hash = sha256(convert_to(f.body, pg_client_encoding()::name)) AND g.pipeline_id + 0 = 7 OFFSET 0) END, k.checkpoint
FROM judged AS k
LEFT JOIN LATERAL (SELECT (format('%s', r."id") COLLATE pg_catalog."C") AS row_key, true AS keep, ''::bytea || CASE WHEN num_nulls(r."title") = 1 THEN decode(repeat('00', 16), 'hex') ELSE substr(sha256(convert_to(format('%s', r."title"), pg_client_encoding()::name)), 1, 16) END || CASE WHEN num_nulls(r."body") = 1 THEN decode(repeat('00', 16), 'hex') ELSE substr(sha256(convert_to(format('%s', r."body"), pg_client_encoding()::name)), 1, 16) END AS source, CASE WHEN true THEN left(pg_catalog.concat_ws(E'\n\n', nullif(r."title"::text, ''), nullif(r."body"::text, '')), 1048576) END AS body, r."embedding" AS stored
  FROM ONLY "public"."docs" AS r
  WHERE r."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint) AND k.verdict = 'now'
  LIMIT 1) AS f ON true
LEFT JOIN LATERAL (SELECT g.source_hash, g.text_hash, g.norm_hash, g.vector_hash, g.generation, g.xmin::text AS version, CASE WHEN g.lsn = '0/0' THEN extract(epoch
    FROM g.written_at)::bigint END AS adopted, g.skipped, CASE WHEN g.skipped IS NOT NULL THEN g.lsn END AS skipped_at
  FROM embedsidecar.ledger AS g
  WHERE g.pipeline_id = 7 AND g.row_key = k.row_key AND k.verdict = 'now' OFFSET 0) AS l ON true
WHERE true AND CASE WHEN '"public"."docs"'::pg_catalog.regclass::oid = 16401 THEN true ELSE (text 'embedsidecar.table_of_another_name')::pg_catalog.regclass IS NULL END
ORDER BY k.place;

-- gone
SELECT k.row_key
FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[])) WITH ORDINALITY AS k (k1, row_key, place)
WHERE NOT EXISTS (SELECT
  FROM ONLY "public"."docs" AS r
  WHERE r."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint) AND (format('%s', r."id") COLLATE pg_catalog."C") = k.row_key AND CASE WHEN '"public"."docs"'::pg_catalog.regclass::oid = 16401 THEN true ELSE (text 'embedsidecar.table_of_another_name')::pg_catalog.regclass IS NULL END OFFSET 0);

-- spell
SELECT CAST(k.k1 AS bigint)
FROM ROWS FROM (pg_catalog.unnest($1::text[])) WITH ORDINALITY AS k (k1, place);

-- write
UPDATE ONLY "public"."docs" AS r
SET "embedding" = k.vector
FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::"public"."vector"[])) WITH ORDINALITY AS k (k1, vector, place)
WHERE r."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint)
RETURNING k.place;

-- empty
UPDATE ONLY "public"."docs" AS r
SET "embedding" = NULL
FROM ROWS FROM (pg_catalog.unnest($1::text[])) WITH ORDINALITY AS k (k1, place)
WHERE r."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint)
RETURNING k.place;

-- lock
SELECT k.place, f.source
FROM ROWS FROM (pg_catalog.unnest($1::text[])) WITH ORDINALITY AS k (k1, place)
CROSS JOIN LATERAL (SELECT ''::bytea || CASE WHEN num_nulls(r."title") = 1 THEN decode(repeat('00', 16), 'hex') ELSE substr(sha256(convert_to(format('%s', r."title"), pg_client_encoding()::name)), 1, 16) END || CASE WHEN num_nulls(r."body") = 1 THEN decode(repeat('00', 16), 'hex') ELSE substr(sha256(convert_to(format('%s', r."body"), pg_client_encoding()::name)), 1, 16) END AS source
  FROM ONLY "public"."docs" AS r
  WHERE r."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint) FOR NO KEY UPDATE SKIP LOCKED) AS f;

-- after
SELECT k.place, coalesce(r."embedding" OPERATOR("public".=) k.vector, false), ''::bytea || CASE WHEN num_nulls(r."title") = 1 THEN decode(repeat('00', 16), 'hex') ELSE substr(sha256(convert_to(format('%s', r."title"), pg_client_encoding()::name)), 1, 16) END || CASE WHEN num_nulls(r."body") = 1 THEN decode(repeat('00', 16), 'hex') ELSE substr(sha256(convert_to(format('%s', r."body"), pg_client_encoding()::name)), 1, 16) END
FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::"public"."vector"[])) WITH ORDINALITY AS k (k1, vector, place)
JOIN ONLY "public"."docs" AS r ON r."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint);

-- reuse
SELECT k.place, r."embedding"
FROM ROWS FROM (pg_catalog.unnest($1::text[])) WITH ORDINALITY AS k (k1, place)
JOIN ONLY "public"."docs" AS r ON r."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint)
WHERE r."embedding" IS NOT NULL;

-- rows.first
SELECT g.row_key, g.answer
FROM (SELECT (format('%s', f."id") COLLATE pg_catalog."C") AS row_key, EXISTS (SELECT
    FROM embedsidecar.ledger AS l
    WHERE l.pipeline_id = 7 AND l.row_key = (format('%s', f."id") COLLATE pg_catalog."C") OFFSET 0) AS answer, row_number() OVER () AS place
  FROM (SELECT r."id"
    FROM ONLY "public"."docs" AS r
    WHERE ((true) AND CASE WHEN '"public"."docs"'::pg_catalog.regclass::oid = 16401 THEN true ELSE (text 'embedsidecar.table_of_another_name')::pg_catalog.regclass IS NULL END)
    ORDER BY r."id" USING OPERATOR("pg_catalog".>)
    LIMIT $1) AS f) AS g
ORDER BY g.place;

-- rows.next
SELECT g.row_key, g.answer
FROM (SELECT (format('%s', f."id") COLLATE pg_catalog."C") AS row_key, EXISTS (SELECT
    FROM embedsidecar.ledger AS l
    WHERE l.pipeline_id = 7 AND l.row_key = (format('%s', f."id") COLLATE pg_catalog."C") OFFSET 0) AS answer, row_number() OVER () AS place
  FROM (SELECT r."id"
    FROM ONLY "public"."docs" AS r
    WHERE ((true) AND CASE WHEN '"public"."docs"'::pg_catalog.regclass::oid = 16401 THEN true ELSE (text 'embedsidecar.table_of_another_name')::pg_catalog.regclass IS NULL END) AND (CAST($2::text AS bigint) OPERATOR("pg_catalog".>) r."id")
    ORDER BY r."id" USING OPERATOR("pg_catalog".>)
    LIMIT $1) AS f) AS g
ORDER BY g.place;

