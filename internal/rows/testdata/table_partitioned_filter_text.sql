-- read
SELECT k.place, f.row_key, f.keep, CASE WHEN (sum(octet_length(f.body)) OVER (ORDER BY k.place) <= $3::bigint OR pg_client_encoding() = 'SQL_ASCII') THEN f.body END, CASE WHEN NOT (btrim(left(f.body, 100), E' \t\n\f\r\x0b') = '' AND btrim(f.body, E' \t\n\f\r\x0b') = '') THEN octet_length(f.body) END, CASE WHEN NOT (sum(octet_length(f.body)) OVER (ORDER BY k.place) <= $3::bigint OR pg_client_encoding() = 'SQL_ASCII') THEN sha256(convert_to(f.body, pg_client_encoding()::name)) END, NULL::text, f.source, l.source_hash, l.text_hash, l.vector_hash, l.generation, l.version, d.text_hash, d.generation
FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[])) WITH ORDINALITY AS k (k1, row_key, place)
LEFT JOIN LATERAL (SELECT format('%s', r."id") AS row_key, ((
published
) IS TRUE) AS keep, ''::bytea AS source, CASE WHEN ((
published
) IS TRUE) THEN left(((
title || body
))::text, 1048576) END AS body
  FROM "public"."docs" AS r
  WHERE r."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint)
  LIMIT 1) AS f ON true
LEFT JOIN LATERAL (SELECT g.source_hash, g.text_hash, g.vector_hash, g.generation, g.xmin::text AS version
  FROM embedsidecar.ledger AS g
  WHERE g.pipeline_id = 7 AND g.row_key = k.row_key OFFSET 0) AS l ON true
LEFT JOIN LATERAL (SELECT e.text_hash, e.generation
  FROM "public"."docs_embedding" AS e
  WHERE e."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint) AND e.chunk_no = 0 OFFSET 0) AS d ON true
ORDER BY k.place;

-- gone
SELECT k.row_key
FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[])) WITH ORDINALITY AS k (k1, row_key, place)
WHERE NOT EXISTS (SELECT
  FROM "public"."docs" AS r
  WHERE r."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint) AND format('%s', r."id") = k.row_key OFFSET 0);

-- spell
SELECT CAST(k.k1 AS bigint)
FROM ROWS FROM (pg_catalog.unnest($1::text[])) WITH ORDINALITY AS k (k1, place);

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
DELETE FROM "public"."docs_embedding" AS d
USING ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[])) WITH ORDINALITY AS k (k1, row_key, place)
WHERE d."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint) AND format('%s', d."id") = k.row_key;

-- reuse
SELECT k.place, d.embedding
FROM ROWS FROM (pg_catalog.unnest($1::text[])) WITH ORDINALITY AS k (k1, place)
JOIN "public"."docs_embedding" AS d ON d."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint)
WHERE d.chunk_no = 0;

-- vectors.first
SELECT g.row_key, g.answer
FROM (SELECT format('%s', f."id") AS row_key, NOT EXISTS (SELECT
    FROM "public"."docs" AS r
    WHERE r."id" OPERATOR("pg_catalog".=) f."id" OFFSET 0) AS answer, row_number() OVER () AS place
  FROM (SELECT r."id"
    FROM "public"."docs_embedding" AS r
    ORDER BY r."id" USING OPERATOR("pg_catalog".>)
    LIMIT $1) AS f) AS g
ORDER BY g.place;

-- vectors.next
SELECT g.row_key, g.answer
FROM (SELECT format('%s', f."id") AS row_key, NOT EXISTS (SELECT
    FROM "public"."docs" AS r
    WHERE r."id" OPERATOR("pg_catalog".=) f."id" OFFSET 0) AS answer, row_number() OVER () AS place
  FROM (SELECT r."id"
    FROM "public"."docs_embedding" AS r
    WHERE (CAST($2::text AS bigint) OPERATOR("pg_catalog".>) r."id")
    ORDER BY r."id" USING OPERATOR("pg_catalog".>)
    LIMIT $1) AS f) AS g
ORDER BY g.place;

-- rows.first
SELECT g.row_key, g.answer
FROM (SELECT format('%s', f."id") AS row_key, EXISTS (SELECT
    FROM embedsidecar.ledger AS l
    WHERE l.pipeline_id = 7 AND l.row_key = format('%s', f."id") OFFSET 0) AS answer, row_number() OVER () AS place
  FROM (SELECT r."id"
    FROM "public"."docs" AS r
    ORDER BY r."id" USING OPERATOR("pg_catalog".>)
    LIMIT $1) AS f) AS g
ORDER BY g.place;

-- rows.next
SELECT g.row_key, g.answer
FROM (SELECT format('%s', f."id") AS row_key, EXISTS (SELECT
    FROM embedsidecar.ledger AS l
    WHERE l.pipeline_id = 7 AND l.row_key = format('%s', f."id") OFFSET 0) AS answer, row_number() OVER () AS place
  FROM (SELECT r."id"
    FROM "public"."docs" AS r
    WHERE (CAST($2::text AS bigint) OPERATOR("pg_catalog".>) r."id")
    ORDER BY r."id" USING OPERATOR("pg_catalog".>)
    LIMIT $1) AS f) AS g
ORDER BY g.place;

