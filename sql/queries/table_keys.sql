-- table_keys: the columns that identify a row of tables, in the replication stream and in queries: those of its replica
-- identity. Operators are those of the default btree operator class of what the index compares, so that sorting and
-- comparing agree. A domain's values are compared as those of its base type: existing values need not satisfy a
-- constraint that was added later.
-- type_usable: the current role may use the schema of the column's type, as statements must.
-- Rows: a column each, in the order of the key. Locks: none.
WITH key AS MATERIALIZED (
    SELECT a.attrelid, n, a.attname, a.atttypid AS type, i.indcollation[n] AS collation, o.opcfamily AS family,
        o.opcintype AS input
    FROM   (SELECT i.* FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid
            WHERE c.oid = ANY (@tables::oid[]) AND i.indisunique AND i.indisvalid
            AND CASE WHEN c.relreplident = 'i' THEN i.indisreplident ELSE i.indisprimary END
            AND (i.indimmediate OR c.relreplident = 'f') OFFSET 0) AS i
           CROSS JOIN LATERAL generate_series(0, i.indnkeyatts - 1) AS n
           JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[n]
           JOIN pg_opclass used ON used.oid = i.indclass[n]
           LEFT JOIN pg_opclass o ON o.opcintype = used.opcintype AND o.opcdefault
               AND o.opcmethod = (SELECT m.oid FROM pg_am m WHERE m.amname = 'btree')),
type AS ( -- once for each type
    SELECT k.type AS oid,
        (SELECT tn.nspname::text FROM pg_type AS ty JOIN pg_namespace AS tn ON tn.oid = ty.typnamespace
            WHERE ty.oid = k.type) AS schema,
        (SELECT has_schema_privilege(ty.typnamespace, 'USAGE') FROM pg_type AS ty WHERE ty.oid = k.type) AS usable,
        (WITH RECURSIVE base AS (SELECT k.type AS oid UNION ALL SELECT d.typbasetype FROM base
           CROSS JOIN LATERAL (SELECT d.* FROM pg_type AS d WHERE d.oid = base.oid OFFSET 0) AS d WHERE d.typtype = 'd')
            SELECT format_type(base.oid, -1) FROM base
                CROSS JOIN LATERAL (SELECT b.* FROM pg_type AS b WHERE b.oid = base.oid OFFSET 0) AS b
            WHERE b.typtype <> 'd') AS name
    FROM   (SELECT DISTINCT k.type FROM key AS k) AS k),
-- A lookup for each operator: one join for all takes longer to plan than to run.
operator AS (
    SELECT o.family, o.input,
        (SELECT 'OPERATOR("' || replace(en.nspname, '"', '""') || '".' || e.oprname || ')'
            FROM pg_amop ea JOIN pg_operator e ON e.oid = ea.amopopr JOIN pg_namespace en ON en.oid = e.oprnamespace
            WHERE ea.amopfamily = o.family AND ea.amoplefttype = o.input AND ea.amoprighttype = o.input
                AND ea.amopstrategy = 3) AS equal,
        (SELECT 'OPERATOR("' || replace(gn.nspname, '"', '""') || '".' || g.oprname || ')'
            FROM pg_amop ga JOIN pg_operator g ON g.oid = ga.amopopr JOIN pg_namespace gn ON gn.oid = g.oprnamespace
            WHERE ga.amopfamily = o.family AND ga.amoplefttype = o.input AND ga.amoprighttype = o.input
                AND ga.amopstrategy = 5) AS greater
    FROM   (SELECT DISTINCT k.family, k.input FROM key AS k) AS o)
SELECT k.attrelid AS "table", t.schema AS type_schema, t.usable AS type_usable, k.attname::text AS name, t.name AS type,
    CASE WHEN k.collation <> 0 THEN coalesce((
        SELECT format('"%s"."%s"', replace(cn.nspname, '"', '""'), replace(co.collname, '"', '""'))
        FROM pg_collation co LEFT JOIN pg_namespace cn ON cn.oid = co.collnamespace WHERE co.oid = k.collation),
        '') ELSE '' END AS collation, coalesce(o.equal, '') AS equal, coalesce(o.greater, '') AS greater
FROM   key AS k JOIN type AS t ON t.oid = k.type LEFT JOIN operator AS o ON o.family = k.family AND o.input = k.input
ORDER BY k.attrelid, k.n;
