-- joined_columns: whether the server compares the columns that join two tables as they are: built-in types, integers
-- with integers, texts with texts of the same collation.
-- @joined, @table: the tables. @columns, @of: arrays of one length, one element per pair.
-- Rows: one for each pair, in order; type: of the joined column; exact: equal values are printed alike.
-- Locks: none.
SELECT format_type(a.atttypid, -1) AS type, format_type(b.atttypid, -1) AS other,
       a.atttypid < 16384 AND b.atttypid < 16384 AND a.attcollation = b.attcollation
           AND CASE WHEN a.atttypid = b.atttypid THEN EXISTS (SELECT FROM pg_opclass AS o JOIN pg_am AS m
                   ON m.oid = o.opcmethod AND m.amname = 'btree' WHERE o.opcdefault AND o.opcintype = CASE a.atttypid
                       WHEN 'varchar'::regtype THEN 'text'::regtype ELSE a.atttypid END)
               ELSE a.atttypid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype)
                   AND b.atttypid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype)
                   OR a.atttypid IN ('text'::regtype, 'varchar'::regtype)
                   AND b.atttypid IN ('text'::regtype, 'varchar'::regtype) END AS fits,
       a.atttypid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'uuid'::regtype, 'text'::regtype,
           'varchar'::regtype) AND coalesce(l.collisdeterministic, true) AS exact,
       a.attgenerated <> '' OR b.attgenerated <> '' AS generated
FROM   unnest(@columns::text[], @of::text[]) WITH ORDINALITY AS i (joined, of, n)
       JOIN pg_attribute AS a ON a.attrelid = @joined AND a.attname = i.joined
       JOIN pg_attribute AS b ON b.attrelid = @table AND b.attname = i.of
       LEFT JOIN pg_collation AS l ON l.oid = a.attcollation
ORDER BY i.n;
