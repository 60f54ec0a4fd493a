-- table_key: the columns that name a row of a table, in the replication stream as in queries: those of its replica identity. Operators are those of
-- the default btree operator class of what the index compares, so that sorting and comparing agree. A domain's values are compared as those of its
-- base type: a constraint that was added later need not hold for what is there.
-- @identity: pg_class.relreplident.
-- Rows: a column each, in the order of the key. Locks: none.
SELECT a.attname::text AS name,
    (WITH RECURSIVE base AS (SELECT a.atttypid AS oid UNION ALL SELECT d.typbasetype FROM base
       JOIN pg_type d ON d.oid = base.oid WHERE d.typtype = 'd')
        SELECT format_type(base.oid, -1) FROM base JOIN pg_type b ON b.oid = base.oid WHERE b.typtype <> 'd') AS type,
    CASE WHEN co.oid IS NULL THEN '' ELSE format('"%s"."%s"', replace(cn.nspname, '"', '""'), replace(co.collname, '"',
    '""')) END AS collation,
    coalesce('OPERATOR("' || replace(en.nspname, '"', '""') || '".' || e.oprname || ')', '') AS equal,
    coalesce('OPERATOR("' || replace(gn.nspname, '"', '""') || '".' || g.oprname || ')', '') AS greater
FROM   (SELECT i.* FROM pg_index i WHERE i.indrelid = @table AND i.indisunique AND i.indisvalid
        AND CASE WHEN @identity = 'i' THEN i.indisreplident ELSE i.indisprimary END
        AND (i.indimmediate OR @identity = 'f')) AS i
       CROSS JOIN LATERAL generate_series(0, i.indnkeyatts - 1) AS n
       JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[n]
       JOIN pg_opclass used ON used.oid = i.indclass[n]
       LEFT JOIN pg_opclass o ON o.opcintype = used.opcintype AND o.opcdefault AND o.opcmethod = (SELECT m.oid FROM pg_am m
WHERE  m.amname = 'btree')
       LEFT JOIN pg_amop ea ON ea.amopfamily = o.opcfamily AND ea.amoplefttype = o.opcintype
    AND ea.amoprighttype = o.opcintype AND ea.amopstrategy = 3
       LEFT JOIN pg_operator e ON e.oid = ea.amopopr LEFT JOIN pg_namespace en ON en.oid = e.oprnamespace
       LEFT JOIN pg_amop ga ON ga.amopfamily = o.opcfamily AND ga.amoplefttype = o.opcintype
    AND ga.amoprighttype = o.opcintype AND ga.amopstrategy = 5
       LEFT JOIN pg_operator g ON g.oid = ga.amopopr LEFT JOIN pg_namespace gn ON gn.oid = g.oprnamespace
       LEFT JOIN pg_collation co ON co.oid = i.indcollation[n] LEFT JOIN pg_namespace cn ON cn.oid = co.collnamespace
ORDER BY n;
