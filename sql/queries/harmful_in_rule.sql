-- harmful_in_rule: what an expression, by the rule @rule of a view over @table, calls or names that must not run with
-- the rights of other roles: anything that is not part of the server, and functions of the server whose result depends
-- on what they read or do. Of the stable functions, only a few that turn values into text are allowed.
-- Rows: one; NULL: nothing. Locks: none.
SELECT min(f.what) FROM (
    SELECT p.oid::regprocedure::text AS what
    FROM   pg_proc AS p
    WHERE  p.oid = ANY (@functions) AND (p.oid >= 12000 OR p.provolatile = 'v' OR p.provolatile = 's' AND p.proname
               NOT IN ('concat', 'concat_ws', 'format', 'array_to_string', 'to_char', 'textanycat', 'anytextcat',
               'date_trunc', 'date_part', 'extract', 'timezone'))
    UNION ALL
    SELECT pg_describe_object(d.refclassid, d.refobjid, 0)
    FROM   pg_depend AS d
    WHERE  d.classid = 'pg_rewrite'::regclass AND d.objid = @rule AND d.refobjid >= 12000
           AND NOT (d.refclassid = 'pg_class'::regclass
               AND d.refobjid IN (@table, (SELECT w.ev_class FROM pg_rewrite AS w WHERE w.oid = @rule)))) AS f;
