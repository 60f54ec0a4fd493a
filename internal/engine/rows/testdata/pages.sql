-- first
SELECT g.row_key, g.answer
FROM (SELECT replace(replace(format('%s', f."id") COLLATE pg_catalog."C", '\', '\\'), '|', '\|') || '|' || replace(replace(format('%s', f."a ""b""") COLLATE pg_catalog."C", '\', '\\'), '|', '\|') AS row_key, EXISTS (SELECT
    FROM embedsidecar.ledger AS l
    WHERE l.pipeline_id = 7 AND l.row_key = replace(replace(format('%s', f."id") COLLATE pg_catalog."C", '\', '\\'), '|', '\|') || '|' || replace(replace(format('%s', f."a ""b""") COLLATE pg_catalog."C", '\', '\\'), '|', '\|') OFFSET 0) AS answer, row_number() OVER () AS place
  FROM (SELECT r."id", r."a ""b"""
    FROM ONLY "public"."docs" AS r
    WHERE ((r.author = 5) AND CASE WHEN '"public"."docs"'::pg_catalog.regclass::oid = 16401 THEN true ELSE (text 'embedsidecar.table_of_another_name')::pg_catalog.regclass IS NULL END)
    ORDER BY r."id" USING OPERATOR("pg_catalog".>), r."a ""b""" USING OPERATOR("ext".>)
    LIMIT $1) AS f) AS g
ORDER BY g.place;

-- sparse, first
SELECT g.row_key, g.answer
FROM (SELECT replace(replace(format('%s', f."id") COLLATE pg_catalog."C", '\', '\\'), '|', '\|') || '|' || replace(replace(format('%s', f."a ""b""") COLLATE pg_catalog."C", '\', '\\'), '|', '\|') AS row_key, EXISTS (SELECT
    FROM embedsidecar.ledger AS l
    WHERE l.pipeline_id = 7 AND l.row_key = replace(replace(format('%s', f."id") COLLATE pg_catalog."C", '\', '\\'), '|', '\|') || '|' || replace(replace(format('%s', f."a ""b""") COLLATE pg_catalog."C", '\', '\\'), '|', '\|') OFFSET 0) AS answer, f."embedsidecar met" OR row_number() OVER () = count(*) OVER () AS told, row_number() OVER () AS place
  FROM (SELECT r."id", r."a ""b""", (r.author = 5) IS TRUE AS "embedsidecar met"
    FROM ONLY "public"."docs" AS r
    WHERE ((true) AND CASE WHEN '"public"."docs"'::pg_catalog.regclass::oid = 16401 THEN true ELSE (text 'embedsidecar.table_of_another_name')::pg_catalog.regclass IS NULL END)
    ORDER BY r."id" USING OPERATOR("pg_catalog".>), r."a ""b""" USING OPERATOR("ext".>)
    LIMIT $1) AS f) AS g
WHERE g.told
ORDER BY g.place;

-- sparse, next
SELECT g.row_key, g.answer
FROM (SELECT replace(replace(format('%s', f."id") COLLATE pg_catalog."C", '\', '\\'), '|', '\|') || '|' || replace(replace(format('%s', f."a ""b""") COLLATE pg_catalog."C", '\', '\\'), '|', '\|') AS row_key, EXISTS (SELECT
    FROM embedsidecar.ledger AS l
    WHERE l.pipeline_id = 7 AND l.row_key = replace(replace(format('%s', f."id") COLLATE pg_catalog."C", '\', '\\'), '|', '\|') || '|' || replace(replace(format('%s', f."a ""b""") COLLATE pg_catalog."C", '\', '\\'), '|', '\|') OFFSET 0) AS answer, f."embedsidecar met" OR row_number() OVER () = count(*) OVER () AS told, row_number() OVER () AS place
  FROM (SELECT r."id", r."a ""b""", (r.author = 5) IS TRUE AS "embedsidecar met"
    FROM ONLY "public"."docs" AS r
    WHERE ((true) AND CASE WHEN '"public"."docs"'::pg_catalog.regclass::oid = 16401 THEN true ELSE (text 'embedsidecar.table_of_another_name')::pg_catalog.regclass IS NULL END) AND (CAST($2::text AS bigint) OPERATOR("pg_catalog".>) r."id" OR CAST($2::text AS bigint) OPERATOR("pg_catalog".=) r."id" AND (CAST($3::text AS "ext"."citext") COLLATE "pg_catalog"."default") OPERATOR("ext".>) r."a ""b""")
    ORDER BY r."id" USING OPERATOR("pg_catalog".>), r."a ""b""" USING OPERATOR("ext".>)
    LIMIT $1) AS f) AS g
WHERE g.told
ORDER BY g.place;
