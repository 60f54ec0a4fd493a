-- filterable_columns: the columns of a table, each with its type and the operators that compare two values of it as an
-- index would (<, <=, =, >=, >). A domain counts as its base type, an enum as any enum, and a type without a default
-- operator class as a binary-compatible type that has one.
-- Rows: a column each, in the order of the table; no operators for a type without an order. Locks: none.
SELECT a.attname::text AS name, format_type(t.base, -1) AS type, coalesce(e.operators, '{}') AS operators
FROM   pg_attribute AS a
       CROSS JOIN LATERAL (WITH RECURSIVE base AS (
                               SELECT a.atttypid AS oid
                               UNION ALL SELECT y.typbasetype FROM base JOIN pg_type AS y ON y.oid = base.oid
                                   WHERE y.typtype = 'd')
                           SELECT base.oid AS base FROM base JOIN pg_type AS y ON y.oid = base.oid
                               WHERE y.typtype <> 'd') AS t
       LEFT JOIN pg_type AS b ON b.oid = t.base
       LEFT JOIN LATERAL (SELECT o.*
                          FROM   pg_opclass AS o
                          WHERE  o.opcdefault AND o.opcmethod = (SELECT m.oid FROM pg_am AS m WHERE m.amname = 'btree')
                                 AND (o.opcintype = t.base OR o.opcintype = 'anyenum'::regtype AND b.typtype = 'e'
                                      OR EXISTS (SELECT FROM pg_cast AS c
                                                 WHERE  c.castsource = t.base AND c.casttarget = o.opcintype
                                                        AND c.castmethod = 'b' AND c.castcontext = 'i'))
                          ORDER BY o.opcintype = t.base DESC, o.opcintype
                          LIMIT  1) AS o ON true
       LEFT JOIN LATERAL (SELECT array_agg('OPERATOR("' || replace(n.nspname, '"', '""') || '".' || e.oprname || ')'
                                           ORDER BY ea.amopstrategy) AS operators
                          FROM   pg_amop AS ea JOIN pg_operator AS e ON e.oid = ea.amopopr
                                 JOIN pg_namespace AS n ON n.oid = e.oprnamespace
                          WHERE  ea.amopfamily = o.opcfamily AND ea.amoplefttype = o.opcintype
                                 AND ea.amoprighttype = o.opcintype AND ea.amopstrategy BETWEEN 1 AND 5) AS e ON true
WHERE  a.attrelid = @table AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum;
