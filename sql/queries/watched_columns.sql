-- watched_columns: the columns to watch, other than those of the key, for a text of columns: the columns themselves, or
-- those that they are generated from.
-- Rows: a name each, in the order of the table. Locks: none.
WITH text AS (SELECT attnum, attgenerated FROM pg_attribute WHERE attrelid = @table
    AND attname = ANY (@columns::text[]))
    SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = @table AND a.attgenerated = ''
    AND a.attname <> ALL (@key::text[]) AND a.attnum IN (
        SELECT attnum FROM text UNION
        SELECT d.refobjsubid FROM text JOIN pg_attrdef def ON def.adrelid = @table AND def.adnum = text.attnum
        JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = @table
            AND (d.classid = 'pg_attrdef'::regclass AND d.objid = def.oid OR d.classid = 'pg_class'::regclass
                AND d.objid = @table
            AND d.objsubid = text.attnum)
        WHERE text.attgenerated <> '')
ORDER BY a.attnum;
