-- read
SELECT k.place, f.row_key, f.keep, CASE WHEN octet_length(f.body) <= $3::bigint THEN f.body END, CASE WHEN NOT (btrim(left(f.body, 100), E' \t\n\f\r\x0b') = '' AND btrim(f.body, E' \t\n\f\r\x0b') = '') THEN octet_length(f.body) END, CASE WHEN NOT octet_length(f.body) <= $3::bigint THEN CASE WHEN pg_client_encoding() <> 'SQL_ASCII' THEN sha256(convert_to('chunks 1 tokens 200 0 true ' || octet_length(convert_to(coalesce(f.title, ''), pg_client_encoding()::name)) || E'\n' || coalesce(f.title, '') || f.body, pg_client_encoding()::name)) END END, NULL::bytea, f.title, f.source, l.source_hash, l.text_hash, l.norm_hash, l.vector_hash, l.generation, l.version, l.adopted, l.skipped, l.skipped_at, d.text_hash, d.generation
FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[])) WITH ORDINALITY AS k (k1, row_key, place)
LEFT JOIN LATERAL (SELECT (format('%s', r."id") COLLATE pg_catalog."C") AS row_key, true AS keep, ''::bytea || CASE WHEN num_nulls(r."title") = 1 THEN decode(repeat('00', 16), 'hex') ELSE substr(sha256(convert_to(format('%s', r."title"), pg_client_encoding()::name)), 1, 16) END || CASE WHEN num_nulls(r."body") = 1 THEN decode(repeat('00', 16), 'hex') ELSE substr(sha256(convert_to(format('%s', r."body"), pg_client_encoding()::name)), 1, 16) END AS source, CASE WHEN true THEN pg_catalog.concat_ws(E'\n\n', nullif(r."title"::text, ''), nullif(r."body"::text, '')) END AS body, CASE WHEN true THEN left(NULL::text, 2000) END AS title
  FROM ONLY "public"."docs" AS r
  WHERE r."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint)
  LIMIT 1) AS f ON true
LEFT JOIN LATERAL (SELECT g.source_hash, g.text_hash, g.norm_hash, g.vector_hash, g.generation, g.xmin::text AS version, CASE WHEN g.lsn = '0/0' THEN extract(epoch
    FROM g.written_at)::bigint END AS adopted, g.skipped, CASE WHEN g.skipped IS NOT NULL THEN g.lsn END AS skipped_at
  FROM embedsidecar.ledger AS g
  WHERE g.pipeline_id = 7 AND g.row_key = k.row_key OFFSET 0) AS l ON true
LEFT JOIN LATERAL (SELECT sha256(string_agg(e.text_hash, ''::bytea
      ORDER BY e.chunk_no)) AS text_hash, CASE WHEN min(e.generation) = max(e.generation) THEN min(e.generation) ELSE -1 END AS generation
  FROM "public"."docs_embedding" AS e
  WHERE e."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint)) AS d ON true
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

-- at_once
WITH held AS MATERIALIZED (SELECT
  FROM embedsidecar.lsn_checkpoint AS c
  WHERE c.slot_name = $10 AND c.epoch = $11::bigint AND c.saved_at::text = $12 AND c.timeline = ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::integer AND EXISTS (SELECT
    FROM embedsidecar.pipeline AS p
    WHERE p.pipeline_id = 7 AND p.generation = 4) AND (SELECT (row(pg_catalog.set_config('plan_cache_mode', 'force_custom_plan', true), pg_catalog.set_config('enable_seqscan', 'on', true), pg_catalog.set_config('enable_bitmapscan', 'on', true), pg_catalog.set_config('enable_hashjoin', 'on', true), pg_catalog.set_config('enable_mergejoin', 'on', true))) IS NOT NULL) FOR SHARE OF c), input AS MATERIALIZED (SELECT k.*, l.ctid AS at
  FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[]), pg_catalog.unnest($3::text[]), pg_catalog.unnest($4::bytea[]), pg_catalog.unnest($5::bytea[]), pg_catalog.unnest($6::bytea[]), pg_catalog.unnest($7::bytea[]), pg_catalog.unnest($8::pg_lsn[]), pg_catalog.unnest($9::"public"."vector"[])) WITH ORDINALITY AS k (k1, row_key, version, source_hash, text_hash, norm_hash, vector_hash, lsn, vector, place)
  LEFT JOIN LATERAL (SELECT g.ctid
    FROM embedsidecar.ledger AS g
    WHERE g.pipeline_id = 7 AND g.row_key = k.row_key AND g.xmin::text = k.version OFFSET 0) AS l ON true
  WHERE EXISTS (SELECT
    FROM held)
  ORDER BY k.row_key COLLATE "C"), changed AS (UPDATE embedsidecar.ledger AS l
  SET source_hash = i.source_hash, text_hash = i.text_hash, norm_hash = i.norm_hash, vector_hash = i.vector_hash, generation = 4, lsn = i.lsn, written_at = now(), skipped = NULL, ignored = false
  FROM input AS i
  WHERE l.ctid = i.at AND l.xmin::text = i.version
  RETURNING l.row_key, i.k1, i.text_hash, i.vector), made AS (INSERT INTO embedsidecar.ledger AS l (pipeline_id, row_key, source_hash, text_hash, norm_hash, vector_hash, generation, lsn)
  SELECT 7, i.row_key, i.source_hash, i.text_hash, i.norm_hash, i.vector_hash, 4, i.lsn
  FROM input AS i
  WHERE i.version IS NULL
  ORDER BY i.row_key COLLATE "C"
  ON CONFLICT (pipeline_id, row_key) DO NOTHING
  RETURNING l.row_key), passed AS MATERIALIZED (SELECT *
  FROM changed UNION ALL
  SELECT i.row_key, i.k1, i.text_hash, i.vector
  FROM made AS m
  JOIN input AS i USING (row_key)), written AS (INSERT INTO "public"."docs_embedding" AS d ("id", chunk_no, generation, text_hash, embedded_at, embedding)
  SELECT CAST(k.k1 AS bigint), 0, 4, k.text_hash, now(), k.vector
  FROM passed AS k
  ON CONFLICT ("id", chunk_no) DO UPDATE
  SET "id" = excluded."id", generation = excluded.generation, text_hash = excluded.text_hash, embedded_at = excluded.embedded_at, embedding = excluded.embedding)
SELECT k.row_key
FROM passed AS k UNION ALL
SELECT NULL
WHERE EXISTS (SELECT
  FROM held);

-- write
INSERT INTO "public"."docs_embedding" AS d ("id", chunk_no, generation, text_hash, embedded_at, embedding)
SELECT CAST(k.k1 AS bigint), 0, 4, k.text_hash, now(), k.vector
FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::bytea[]), pg_catalog.unnest($3::"public"."vector"[])) WITH ORDINALITY AS k (k1, text_hash, vector, place)
ON CONFLICT ("id", chunk_no) DO UPDATE
SET "id" = excluded."id", generation = excluded.generation, text_hash = excluded.text_hash, embedded_at = excluded.embedded_at, embedding = excluded.embedding;

-- empty
DELETE FROM "public"."docs_embedding" AS d
USING ROWS FROM (pg_catalog.unnest($1::text[])) WITH ORDINALITY AS k (k1, place)
WHERE d."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint);

-- adopt
UPDATE "public"."docs_embedding" AS d
SET generation = 4
FROM ROWS FROM (pg_catalog.unnest($1::text[])) WITH ORDINALITY AS k (k1, place)
WHERE d."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint);

-- remove
WITH stray AS MATERIALIZED (SELECT o.at, o.version
  FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[])) WITH ORDINALITY AS k (k1, row_key, place)
  CROSS JOIN LATERAL (SELECT e.ctid AS at, e.xmin::text AS version, (format('%s', e."id") COLLATE pg_catalog."C") AS row_key
    FROM "public"."docs_embedding" AS e
    WHERE e."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint) OFFSET 0) AS o
  WHERE o.row_key <> k.row_key AND NOT EXISTS (SELECT
    FROM embedsidecar.ledger AS g
    WHERE g.pipeline_id = 7 AND g.row_key = o.row_key OFFSET 0)) DELETE FROM "public"."docs_embedding" AS d
USING ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[])) WITH ORDINALITY AS k (k1, row_key, place)
WHERE d."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint) AND ((format('%s', d."id") COLLATE pg_catalog."C") = k.row_key OR EXISTS (SELECT
    FROM stray AS s
    WHERE s.at = d.ctid AND s.version = d.xmin::text));

-- reuse
SELECT k.place, d.embedding
FROM ROWS FROM (pg_catalog.unnest($1::text[])) WITH ORDINALITY AS k (k1, place)
JOIN "public"."docs_embedding" AS d ON d."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint)
WHERE d.chunk_no = 0;

-- vectors.first
SELECT g.row_key, g.answer
FROM (SELECT (format('%s', f."id") COLLATE pg_catalog."C") AS row_key, NOT EXISTS (SELECT
    FROM ONLY "public"."docs" AS r
    WHERE r."id" OPERATOR("pg_catalog".=) f."id" OFFSET 0) AS answer, row_number() OVER () AS place
  FROM (SELECT r."id"
    FROM "public"."docs_embedding" AS r
    ORDER BY r."id" USING OPERATOR("pg_catalog".>)
    LIMIT $1) AS f) AS g
ORDER BY g.place;

-- vectors.next
SELECT g.row_key, g.answer
FROM (SELECT (format('%s', f."id") COLLATE pg_catalog."C") AS row_key, NOT EXISTS (SELECT
    FROM ONLY "public"."docs" AS r
    WHERE r."id" OPERATOR("pg_catalog".=) f."id" OFFSET 0) AS answer, row_number() OVER () AS place
  FROM (SELECT r."id"
    FROM "public"."docs_embedding" AS r
    WHERE (CAST($2::text AS bigint) OPERATOR("pg_catalog".>) r."id")
    ORDER BY r."id" USING OPERATOR("pg_catalog".>)
    LIMIT $1) AS f) AS g
ORDER BY g.place;

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

-- chunks.stored
SELECT k.place, d.chunk_no, d.start_byte, d.end_byte, d.generation, d.text_hash, num_nonnulls(d.chunk_text) = 1, (format('%s', d."id") COLLATE pg_catalog."C") <> k.row_key
FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[])) WITH ORDINALITY AS k (k1, row_key, place)
JOIN "public"."docs_embedding" AS d ON d."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint)
WHERE d.chunk_no >= 0
ORDER BY k.place, d.chunk_no;

-- chunks.vectors
SELECT k.place, d.embedding
FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::integer[]), pg_catalog.unnest($3::bytea[])) WITH ORDINALITY AS k (k1, chunk_no, text_hash, place)
JOIN "public"."docs_embedding" AS d ON d."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint) AND d.chunk_no = k.chunk_no AND d.text_hash = k.text_hash;

-- chunks.shift
UPDATE "public"."docs_embedding" AS d
SET start_byte = k.start_byte, end_byte = k.end_byte, chunk_text = NULL, generation = 4
FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::integer[]), pg_catalog.unnest($3::bytea[]), pg_catalog.unnest($4::integer[]), pg_catalog.unnest($5::integer[]), pg_catalog.unnest($6::text[])) WITH ORDINALITY AS k (k1, chunk_no, text_hash, start_byte, end_byte, chunk_text, place)
WHERE d."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint) AND d.chunk_no = k.chunk_no AND d.text_hash = k.text_hash;

-- chunks.put
INSERT INTO "public"."docs_embedding" AS d ("id", chunk_no, generation, text_hash, embedded_at, start_byte, end_byte, context, chunk_text, embedding)
SELECT CAST(k.k1 AS bigint), k.chunk_no, 4, k.text_hash, now(), k.start_byte, k.end_byte, nullif(k.context, ''), k.chunk_text, k.vector
FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::integer[]), pg_catalog.unnest($3::bytea[]), pg_catalog.unnest($4::integer[]), pg_catalog.unnest($5::integer[]), pg_catalog.unnest($6::text[]), pg_catalog.unnest($7::text[]), pg_catalog.unnest($8::"public"."vector"[])) WITH ORDINALITY AS k (k1, chunk_no, text_hash, start_byte, end_byte, context, chunk_text, vector, place)
ON CONFLICT ("id", chunk_no) DO UPDATE
SET "id" = excluded."id", generation = excluded.generation, text_hash = excluded.text_hash, embedded_at = excluded.embedded_at, start_byte = excluded.start_byte, end_byte = excluded.end_byte, context = excluded.context, chunk_text = excluded.chunk_text, embedding = excluded.embedding;

-- chunks.end
DELETE FROM "public"."docs_embedding" AS d
USING ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::integer[])) WITH ORDINALITY AS k (k1, chunks, place)
WHERE d."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint) AND (d.chunk_no >= k.chunks OR d.chunk_no < 0);

-- chunks.deep
SELECT coalesce(d.start_byte, 0), coalesce(d.end_byte, 0), coalesce(d.context, ''), d.chunk_text, d.text_hash
FROM ROWS FROM (pg_catalog.unnest($1::text[])) WITH ORDINALITY AS k (k1, place)
JOIN "public"."docs_embedding" AS d ON d."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint)
ORDER BY k.place, d.chunk_no;

-- chunks.all
SELECT k.place, d.embedding
FROM ROWS FROM (pg_catalog.unnest($1::text[])) WITH ORDINALITY AS k (k1, place)
JOIN "public"."docs_embedding" AS d ON d."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint)
ORDER BY k.place, d.chunk_no;

