-- column_vector: read
SELECT k.place, v.vector, v.stale OR coalesce((SELECT (r.xmin::text::bigint - "embedsidecar set up".first) & 4294967295 <= 1000000 + greatest(0, pg_snapshot_xmax(pg_current_snapshot())::text::bigint - "embedsidecar set up".first)
    FROM (SELECT greatest(pg_snapshot_xmin(p.set_up)::text::bigint, pg_snapshot_xmax(p.set_up)::text::bigint - 100000)
      FROM embedsidecar.pipeline AS p
      WHERE p.pipeline_id = 7) AS "embedsidecar set up" (first)), false), v.chunk
FROM ROWS FROM (pg_catalog.unnest($1::text[])) WITH ORDINALITY AS k (k1, place)
JOIN ONLY "public"."docs" AS r ON r."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint)
CROSS JOIN LATERAL (SELECT g."old" AS vector, false AS stale, '' AS chunk, row_number() OVER (ORDER BY g.ctid) AS no
  FROM "public"."docs" AS g
  WHERE g."id" OPERATOR("pg_catalog".=) r."id" AND g."old" IS NOT NULL) AS v
ORDER BY k.place, v.no;

-- sample
SELECT f.row_key, f.body, coalesce(f.title, ''), v.vector
FROM (SELECT (format('%s', r."id") COLLATE pg_catalog."C") AS row_key, CASE WHEN true THEN left(pg_catalog.concat_ws(E'\n\n', nullif(r."title"::text, ''), nullif(r."body"::text, '')), 1048576) END AS body, left(NULL::text, 2000) AS title, r."id" AS k1
  FROM ONLY "public"."docs" AS r TABLESAMPLE SYSTEM ($1::real)) AS f
CROSS JOIN LATERAL (SELECT g."old" AS vector, false AS stale, '' AS chunk
  FROM "public"."docs" AS g
  WHERE g."id" OPERATOR("pg_catalog".=) f.k1 AND g."old" IS NOT NULL) AS v
WHERE NOT v.stale AND btrim(f.body, E' \t\n\f\r\x0b') <> '' AND octet_length(f.body) <= $2 AND f.body IS NOT NULL
ORDER BY random()
LIMIT $3;

-- count
SELECT count(*), count(v.vector), count(*) FILTER (WHERE v.stale)
FROM ONLY "public"."docs" AS r
LEFT JOIN LATERAL (SELECT true AS vector, bool_or(w.stale) AS stale
  FROM (SELECT g."old" AS vector, false AS stale, '' AS chunk
    FROM "public"."docs" AS g
    WHERE g."id" OPERATOR("pg_catalog".=) r."id" AND g."old" IS NOT NULL) AS w HAVING count(*) > 0) AS v ON true;

-- chunks: read
SELECT k.place, v.vector, v.stale OR coalesce((SELECT (r.xmin::text::bigint - "embedsidecar set up".first) & 4294967295 <= 1000000 + greatest(0, pg_snapshot_xmax(pg_current_snapshot())::text::bigint - "embedsidecar set up".first)
    FROM (SELECT greatest(pg_snapshot_xmin(p.set_up)::text::bigint, pg_snapshot_xmax(p.set_up)::text::bigint - 100000)
      FROM embedsidecar.pipeline AS p
      WHERE p.pipeline_id = 7) AS "embedsidecar set up" (first)), false), v.chunk
FROM ROWS FROM (pg_catalog.unnest($1::text[])) WITH ORDINALITY AS k (k1, place)
JOIN ONLY "public"."docs" AS r ON r."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint)
CROSS JOIN LATERAL (SELECT g."embedding" AS vector, coalesce(r."updated_at" > g."made_at", false) AS stale, coalesce(g."chunk"::text, '') AS chunk, row_number() OVER (ORDER BY g.ctid, g."chunk_seq") AS no
  FROM "public"."store" AS g
  WHERE g."doc_id" OPERATOR("pg_catalog".=) r."id" AND true) AS v
ORDER BY k.place, v.no;

-- sample
SELECT f.row_key, v.chunk, coalesce(f.title, ''), v.vector
FROM (SELECT (format('%s', r."id") COLLATE pg_catalog."C") AS row_key, CASE WHEN true THEN left(pg_catalog.concat_ws(E'\n\n', nullif(r."title"::text, ''), nullif(r."body"::text, '')), 1048576) END AS body, left(((
title
))::text, 2000) AS title, r."id" AS k1, r."updated_at" AS changed
  FROM ONLY "public"."docs" AS r TABLESAMPLE SYSTEM ($1::real)) AS f
CROSS JOIN LATERAL (SELECT g."embedding" AS vector, coalesce(f.changed > g."made_at", false) AS stale, coalesce(g."chunk"::text, '') AS chunk
  FROM "public"."store" AS g
  WHERE g."doc_id" OPERATOR("pg_catalog".=) f.k1 AND true) AS v
WHERE NOT v.stale AND btrim(v.chunk, E' \t\n\f\r\x0b') <> '' AND octet_length(v.chunk) <= $2 AND f.body IS NOT NULL
ORDER BY random()
LIMIT $3;

-- count
SELECT count(*), count(v.vector), count(*) FILTER (WHERE v.stale)
FROM ONLY "public"."docs" AS r
LEFT JOIN LATERAL (SELECT true AS vector, bool_or(w.stale) AS stale
  FROM (SELECT g."embedding" AS vector, coalesce(r."updated_at" > g."made_at", false) AS stale, coalesce(g."chunk"::text, '') AS chunk
    FROM "public"."store" AS g
    WHERE g."doc_id" OPERATOR("pg_catalog".=) r."id" AND true) AS w HAVING count(*) > 0) AS v ON true;

-- with joins: read
SELECT k.place, v.vector, v.stale OR coalesce((SELECT (r.xmin::text::bigint - "embedsidecar set up".first) & 4294967295 <= 1000000 + greatest(0, pg_snapshot_xmax(pg_current_snapshot())::text::bigint - "embedsidecar set up".first) OR EXISTS (SELECT
      FROM ONLY "public"."tags" AS "tag"
      WHERE "tag"."id" OPERATOR(pg_catalog.=) r."tag_id" AND (("tag".xmin::text::bigint - "embedsidecar set up".first) & 4294967295 <= 1000000 + greatest(0, pg_snapshot_xmax(pg_current_snapshot())::text::bigint - "embedsidecar set up".first) OR EXISTS (SELECT
          FROM ONLY "public"."kinds" AS "kind"
          WHERE "kind"."id" OPERATOR(pg_catalog.=) "tag"."kind_id" AND (("kind".xmin::text::bigint - "embedsidecar set up".first) & 4294967295 <= 1000000 + greatest(0, pg_snapshot_xmax(pg_current_snapshot())::text::bigint - "embedsidecar set up".first)))))
    FROM (SELECT greatest(pg_snapshot_xmin(p.set_up)::text::bigint, pg_snapshot_xmax(p.set_up)::text::bigint - 100000)
      FROM embedsidecar.pipeline AS p
      WHERE p.pipeline_id = 7) AS "embedsidecar set up" (first)), false), v.chunk
FROM ROWS FROM (pg_catalog.unnest($1::text[])) WITH ORDINALITY AS k (k1, place)
JOIN ONLY "public"."docs" AS r ON r."id" OPERATOR("pg_catalog".=) CAST(k.k1 AS bigint)
CROSS JOIN LATERAL (SELECT g."old" AS vector, false AS stale, '' AS chunk, row_number() OVER (ORDER BY g.ctid) AS no
  FROM "public"."docs" AS g
  WHERE g."id" OPERATOR("pg_catalog".=) r."id" AND g."old" IS NOT NULL) AS v
ORDER BY k.place, v.no;

