-- expression_columns: the columns of a table that the rule of a view depends on. Not every version has generated
-- columns in the WAL, so a generated column stands for the columns that it is computed from.
-- Rows: a name each, in the order of the table. Locks: none.
WITH direct AS (
        SELECT refobjsubid AS n FROM pg_depend
        WHERE classid = 'pg_rewrite'::regclass AND objid = @rule AND refclassid = 'pg_class'::regclass
            AND refobjid = @table
        AND refobjsubid > 0),
    made_of AS (
        SELECT d.refobjsubid AS n FROM direct
        JOIN pg_attribute a ON a.attrelid = @table AND a.attnum = direct.n AND a.attgenerated <> ''
        JOIN pg_attrdef def ON def.adrelid = @table AND def.adnum = a.attnum
        JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = @table AND d.refobjsubid > 0
        AND d.refobjsubid <> a.attnum
            AND (d.classid = 'pg_attrdef'::regclass AND d.objid = def.oid
                OR d.classid = 'pg_class'::regclass AND d.objid = @table AND d.objsubid = a.attnum))
    SELECT a.attname::text FROM (SELECT n FROM direct UNION SELECT n FROM made_of) AS c
       JOIN pg_attribute a ON a.attrelid = @table AND a.attnum = c.n ORDER BY a.attnum;
