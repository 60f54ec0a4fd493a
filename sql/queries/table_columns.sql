-- table_columns: the columns of a table. collation: a clause for a definition; empty when it is the type's own.
-- Rows: one for each, in their order. Locks: none.
SELECT a.attnum AS number, a.attname::text AS name, a.atttypid AS type,
    a.atttypmod AS modifier,
    format_type(a.atttypid, a.atttypmod) AS type_name, t.typcategory::text AS category, a.attnotnull AS not_null,
    a.attgenerated <> '' AS generated,
    a.atthasdef OR a.attidentity <> '' AS "default",
    CASE WHEN a.attcollation <> 0 AND a.attcollation <> t.typcollation
    THEN quote_ident(cn.nspname) || '.' || quote_ident(co.collname) ELSE '' END AS collation
FROM   pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
       LEFT JOIN pg_collation co ON co.oid = a.attcollation LEFT JOIN pg_namespace cn ON cn.oid = co.collnamespace
WHERE  a.attrelid = @table AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum;
