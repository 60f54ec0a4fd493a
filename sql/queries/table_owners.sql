-- table_owners: whose code could run when a superuser works on some tables. These are owners who are neither superusers
-- nor trusted: of a table, its partitions, children and parents, or of a schema that statements name, where another
-- table or type could take the name (that of one of them, or of pgvector, whose own owner counts too). Parents count
-- because their owner creates indexes on partitions of others. Also roles that own a function in a constraint, an index
-- or statistics of one of the tables, which a plan may run; and those that created, or may create, a trigger, or own a
-- function in a generated column, a partition key, a rule or a range type, or a domain that one of these or a
-- constraint or an index uses, to which they may add constraints: a write would run that.
-- @tables: their numbers. @trusted: the roles that the configuration names.
-- Rows: at most two for each, and none unless the session is a superuser's: the session's role, what is wrong, the role
-- that it is about ('' for PUBLIC), whether only a write fires it, and the statement that fixes it, or that lets the
-- owner do the work; or ''. Locks: none.
WITH RECURSIVE below AS (
    SELECT t.oid AS root, t.oid AS relid FROM unnest(@tables::oid[]) AS t (oid)
    UNION
    SELECT b.root, h.inhrelid FROM below AS b JOIN pg_inherits AS h ON h.inhparent = b.relid),
above AS (
    SELECT t.oid AS root, t.oid AS relid FROM unnest(@tables::oid[]) AS t (oid)
    UNION
    SELECT a.root, h.inhparent FROM above AS a JOIN pg_inherits AS h ON h.inhrelid = a.relid),
part AS (
    SELECT f.root, c.oid, c.relowner, c.relnamespace, c.relacl
    FROM  (SELECT * FROM below UNION SELECT * FROM above) AS f JOIN pg_class AS c ON c.oid = f.relid),
named AS (
    SELECT p.root, p.relnamespace AS schema FROM part AS p
    UNION SELECT t.oid, e.extnamespace FROM unnest(@tables::oid[]) AS t (oid), pg_extension AS e
    WHERE  e.extname = 'vector'),
held AS ( -- a plan may evaluate the body of an SQL function
    SELECT p.root, p.oid, p.relowner, h.thing, h.class, h.object, h.written
    FROM   part AS p CROSS JOIN LATERAL (
               SELECT 'constraint ' || quote_ident(k.conname), 'pg_constraint'::regclass, k.oid, false
               FROM   pg_constraint AS k WHERE k.conrelid = p.oid
               UNION ALL
               SELECT 'index ' || i.indexrelid::regclass::text, 'pg_class'::regclass, i.indexrelid, false
               FROM   pg_index AS i WHERE i.indrelid = p.oid AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL)
               UNION ALL
               SELECT 'statistics ' || quote_ident(s.stxname), 'pg_statistic_ext'::regclass, s.oid, false
               FROM   pg_statistic_ext AS s WHERE s.stxrelid = p.oid
               UNION ALL
               SELECT 'generated column ' || quote_ident(a.attname), g.class, g.oid, true
               FROM   pg_attribute AS a CROSS JOIN LATERAL (
                          SELECT 'pg_attrdef'::regclass, f.oid FROM pg_attrdef AS f
                          WHERE  f.adrelid = a.attrelid AND f.adnum = a.attnum
                          UNION ALL SELECT 'pg_class'::regclass, a.attrelid) AS g (class, oid) -- in PostgreSQL 14
               WHERE  a.attrelid = p.oid AND a.attgenerated <> ''
               UNION ALL
               SELECT 'partition key', 'pg_class'::regclass, k.partrelid, true
               FROM   pg_partitioned_table AS k WHERE k.partrelid = p.oid
               UNION ALL
               SELECT 'rule ' || quote_ident(w.rulename), 'pg_rewrite'::regclass, w.oid, true
               FROM   pg_rewrite AS w WHERE w.ev_class = p.oid) AS h (thing, class, object, written)),
finding (rank, root, problem, who, fires, remedy) AS (
    SELECT CASE WHEN p.oid = p.root THEN 1 ELSE 2 END, p.root, p.oid::regclass::text || ' belongs to', p.relowner,
           false, ''
    FROM   part AS p
    UNION ALL
    SELECT 3, n.root, 'schema ' || quote_ident(s.nspname) || ' belongs to', CASE WHEN o.rolname = 'pg_database_owner'
               THEN (SELECT d.datdba FROM pg_database AS d WHERE d.datname = current_database())
               ELSE o.oid END, false, ''
    FROM   named AS n JOIN pg_namespace AS s ON s.oid = n.schema JOIN pg_roles AS o ON o.oid = s.nspowner
    UNION ALL
    SELECT 4, t.oid, 'extension vector belongs to', e.extowner, false, ''
    FROM   unnest(@tables::oid[]) AS t (oid), pg_extension AS e WHERE e.extname = 'vector'
    UNION ALL
    SELECT 5, p.root, 'trigger ' || quote_ident(g.tgname) || ' on ' || p.oid::regclass::text
               || ' runs a function that belongs to', f.proowner, true,
           format('DROP TRIGGER %I ON %s;', g.tgname, p.oid::regclass)
    FROM   part AS p JOIN pg_trigger AS g ON g.tgrelid = p.oid AND NOT g.tgisinternal
           JOIN pg_depend AS d ON d.classid = 'pg_trigger'::regclass AND d.objid = g.oid -- also what its WHEN calls
           JOIN pg_proc AS f ON f.oid = CASE d.refclassid WHEN 'pg_proc'::regclass THEN d.refobjid
               WHEN 'pg_operator'::regclass THEN (SELECT o.oprcode FROM pg_operator AS o WHERE o.oid = d.refobjid) END
    UNION ALL
    SELECT 6, h.root, h.thing || ' of ' || h.oid::regclass::text || ' runs a function that belongs to', f.proowner,
           h.written, format('ALTER FUNCTION %s OWNER TO %I;', f.oid::regprocedure, pg_get_userbyid(h.relowner))
    FROM   held AS h JOIN pg_depend AS d ON d.classid = h.class AND d.objid = h.object
           JOIN pg_proc AS f ON f.oid = CASE d.refclassid WHEN 'pg_proc'::regclass THEN d.refobjid
               WHEN 'pg_operator'::regclass THEN (SELECT o.oprcode FROM pg_operator AS o WHERE o.oid = d.refobjid) END
    UNION ALL
    SELECT 6, h.root, h.thing || ' of ' || h.oid::regclass::text || ' uses a domain that belongs to', t.typowner, true,
           format('ALTER DOMAIN %s OWNER TO %I;', t.oid::regtype, pg_get_userbyid(h.relowner))
    FROM   held AS h JOIN pg_depend AS d ON d.classid = h.class AND d.objid = h.object
               AND d.objsubid = 0 -- what is only the type of a column is not evaluated
               AND d.refclassid = 'pg_type'::regclass
           JOIN pg_type AS t ON t.oid = d.refobjid AND t.typtype = 'd'
    UNION ALL -- an index of a range calls the function
    SELECT 6, p.root, 'type of column ' || quote_ident(a.attname) || ' of ' || p.oid::regclass::text
               || ' has a function that belongs to', f.proowner, true,
           format('ALTER FUNCTION %s OWNER TO %I;', f.oid::regprocedure, pg_get_userbyid(p.relowner))
    FROM   part AS p JOIN pg_attribute AS a ON a.attrelid = p.oid AND NOT a.attisdropped
           JOIN pg_type AS t ON t.oid = a.atttypid
           JOIN pg_range AS g ON coalesce(nullif(t.typbasetype, 0), t.oid) IN (g.rngtypid, g.rngmultitypid)
           JOIN pg_proc AS f ON f.oid IN (g.rngsubdiff, g.rngcanonical)
    UNION ALL
    SELECT 7, p.root, 'triggers on ' || p.oid::regclass::text || ' may be made by', a.grantee, true,
           format('REVOKE TRIGGER ON %s FROM %s;', p.oid::regclass, CASE a.grantee WHEN 0 THEN 'PUBLIC'
               ELSE quote_ident(pg_get_userbyid(a.grantee)) END)
    FROM   part AS p CROSS JOIN LATERAL aclexplode(p.relacl) AS a WHERE a.privilege_type = 'TRIGGER')
SELECT DISTINCT ON (f.root, f.fires) f.root AS "table", r.rolname::text AS role, f.problem,
    coalesce(o.rolname::text, '') AS owner, f.fires,
    CASE WHEN f.rank > 2 OR o.rolcanlogin AND o.rolreplication THEN f.remedy
         ELSE format('ALTER ROLE %I%s%s;', o.rolname, CASE WHEN NOT o.rolcanlogin THEN ' LOGIN' END,
             CASE WHEN NOT o.rolreplication THEN ' REPLICATION' END) END AS remedy
FROM   pg_roles AS r CROSS JOIN finding AS f LEFT JOIN pg_roles AS o ON o.oid = f.who
WHERE  r.rolsuper AND r.rolname IN (session_user, current_user)
    AND (o.oid IS NULL OR NOT o.rolsuper AND o.rolname <> ALL (@trusted::text[]))
ORDER  BY f.root, f.fires, f.rank, f.problem, 4;
