-- table_columns: the columns of tables, and what the current role may do with them. base: the type that its own is a
-- domain of, or itself; base_name: as it is written in a definition, without collation; collation: that clause, empty
-- if it is the base type's own.
-- Rows: one for each, in their order. Locks: none.
WITH RECURSIVE wanted AS MATERIALIZED (
    SELECT a.* FROM pg_attribute AS a WHERE a.attrelid = ANY (@tables::oid[]) AND a.attnum > 0 AND NOT a.attisdropped),
base AS ( -- once for each type
    SELECT DISTINCT w.atttypid AS type, w.atttypid AS oid, -1 AS modifier FROM wanted AS w
    UNION ALL
    SELECT base.type, d.typbasetype, d.typtypmod
        FROM base CROSS JOIN LATERAL (SELECT d.* FROM pg_type AS d WHERE d.oid = base.oid OFFSET 0) AS d
        WHERE d.typtype = 'd')
SELECT a.attrelid AS "table", a.attnum AS number, a.attname::text AS name, a.atttypid AS type,
    a.atttypmod AS modifier,
    format_type(a.atttypid, a.atttypmod) AS type_name, t.typcategory::text AS category, a.attnotnull AS not_null,
    a.attgenerated <> '' AS generated,
    a.atthasdef OR a.attidentity <> '' AS "default",
    b.oid AS base, format_type(b.oid, CASE WHEN b.oid = a.atttypid THEN a.atttypmod
        ELSE base.modifier END) AS base_name,
    CASE WHEN a.attcollation <> 0 AND a.attcollation <> b.typcollation
    THEN quote_ident(cn.nspname) || '.' || quote_ident(co.collname) ELSE '' END AS collation,
    -- A right on the table covers each column, and takes one lookup.
    coalesce(has_table_privilege(a.attrelid, 'SELECT') OR has_column_privilege(a.attrelid, a.attnum, 'SELECT'),
        true) AS readable,
    coalesce(has_table_privilege(a.attrelid, 'UPDATE') OR has_column_privilege(a.attrelid, a.attnum, 'UPDATE'),
        true) AS updatable
FROM   wanted AS a JOIN pg_type AS t ON t.oid = a.atttypid
       JOIN base ON base.type = a.atttypid JOIN pg_type AS b ON b.oid = base.oid AND b.typtype <> 'd'
       LEFT JOIN pg_collation co ON co.oid = a.attcollation LEFT JOIN pg_namespace cn ON cn.oid = co.collnamespace
ORDER BY a.attrelid, a.attnum;
