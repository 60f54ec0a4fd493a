-- strangers: which of our objects were created, or could be changed, by a role that this session does not trust: code
-- attached to a table runs with the rights of the table's user. The query checks the schema embedsidecar with
-- everything in it, and the tables @tables with their partitions and children. On the latter, rules and defaults of a
-- trusted owner count as the owner's, but triggers do not: a role with the privilege TRIGGER can create one. On the
-- former, a trigger may run a function of a trusted role (an audit, say), but none of PostgreSQL's own (below oid
-- 16384), which anyone may attach. Our views have their names here but count as no tables: this program reads none.
-- Rows: the first few, objects first: the object, what is wrong with it, and the role that could use it ('' if it is
-- not about a role). Reads only pg_catalog. Locks: none.
WITH RECURSIVE trusted AS (
    SELECT r.oid FROM pg_roles AS r WHERE (TRUSTED r)),
friend AS (
    SELECT t.oid FROM trusted AS t
    UNION SELECT r.oid FROM pg_roles AS r, pg_database AS d
    WHERE  r.rolname = 'pg_database_owner' AND d.datname = current_database()
        AND d.datdba IN (SELECT t.oid FROM trusted AS t)),
-- If a role may not use a schema, nothing in it can run as that role.
our AS (SELECT n.oid, n.nspowner FROM pg_namespace AS n WHERE n.nspname = 'embedsidecar'
    AND has_schema_privilege(n.oid, 'USAGE')),
relation AS (
    SELECT c.oid, c.relname, c.relowner, c.relkind, c.relrowsecurity, true AS inside
    FROM   pg_class AS c JOIN our ON our.oid = c.relnamespace WHERE c.relkind NOT IN ('i', 'I', 't')
    UNION
    SELECT c.oid, c.relname, c.relowner, c.relkind, c.relrowsecurity, false
    FROM   pg_class AS c WHERE c.oid = ANY (@tables::oid[])
    UNION
    SELECT c.oid, c.relname, c.relowner, c.relkind, c.relrowsecurity, r.inside
    FROM   relation AS r JOIN pg_inherits AS h ON h.inhparent = r.oid JOIN pg_class AS c ON c.oid = h.inhrelid),
-- Functions of untrusted roles in any schema; mostly there are none. Those below 12000 are PostgreSQL's own: it records
-- no dependencies for them.
foreign_code AS MATERIALIZED (
    SELECT p.oid, p.proowner, p.pronamespace FROM pg_proc AS p WHERE p.oid >= 12000
        AND p.proowner NOT IN (SELECT f.oid FROM friend AS f)),
-- Those that run when a relation is used, by a trigger, default, constraint, index, statistics or rule (of a view), or
-- by a type's default or constraint.
code AS MATERIALIZED (
    SELECT DISTINCT f.oid AS function, f.proowner, CASE d.classid
           WHEN 'pg_type'::regclass       THEN d.objid
           WHEN 'pg_constraint'::regclass THEN (SELECT k.contypid FROM pg_constraint AS k WHERE k.oid = d.objid)
           END AS type, CASE d.classid
           WHEN 'pg_trigger'::regclass    THEN (SELECT t.tgrelid FROM pg_trigger AS t WHERE t.oid = d.objid
               AND NOT t.tgisinternal)
           WHEN 'pg_attrdef'::regclass    THEN (SELECT a.adrelid FROM pg_attrdef AS a WHERE a.oid = d.objid)
           WHEN 'pg_constraint'::regclass THEN (SELECT k.conrelid FROM pg_constraint AS k WHERE k.oid = d.objid)
           WHEN 'pg_class'::regclass      THEN coalesce((SELECT i.indrelid FROM pg_index AS i
               WHERE i.indexrelid = d.objid), d.objid) -- in PostgreSQL 14, a generated column itself
           WHEN 'pg_statistic_ext'::regclass THEN (SELECT s.stxrelid FROM pg_statistic_ext AS s WHERE s.oid = d.objid)
           WHEN 'pg_rewrite'::regclass    THEN (SELECT w.ev_class FROM pg_rewrite AS w
               WHERE w.oid = d.objid) END AS relation
    FROM   foreign_code AS f
    CROSS JOIN LATERAL ( -- the function, and the operators that call it
        SELECT 'pg_proc'::regclass, f.oid
        UNION ALL SELECT 'pg_operator'::regclass, o.oid FROM pg_operator AS o
            WHERE o.oprcode = f.oid) AS named (class, oid)
    JOIN   pg_depend AS d ON d.refclassid = named.class AND d.refobjid = named.oid),
-- Users' types of values in a relation, or named by its defaults, constraints or indexes, with their component types
-- and the types that their own defaults and constraints name.
used AS (
    SELECT o.relation, d.refobjid AS type
    FROM  (SELECT r.oid, 'pg_class'::regclass, r.oid FROM relation AS r
           UNION ALL SELECT a.adrelid, 'pg_attrdef'::regclass, a.oid FROM relation AS r
               JOIN pg_attrdef AS a ON a.adrelid = r.oid
           UNION ALL SELECT k.conrelid, 'pg_constraint'::regclass, k.oid FROM relation AS r
               JOIN pg_constraint AS k ON k.conrelid = r.oid AND k.contype = 'c'
           UNION ALL SELECT i.indrelid, 'pg_class'::regclass, i.indexrelid FROM relation AS r
               JOIN pg_index AS i ON i.indrelid = r.oid AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL)
           UNION ALL SELECT s.stxrelid, 'pg_statistic_ext'::regclass, s.oid FROM relation AS r
               JOIN pg_statistic_ext AS s ON s.stxrelid = r.oid
          ) AS o (relation, class, oid)
          JOIN pg_depend AS d ON d.classid = o.class AND d.objid = o.oid AND d.refclassid = 'pg_type'::regclass
    UNION
    SELECT u.relation, d.refobjid
    FROM   used AS u JOIN pg_type AS t ON t.oid = u.type
           CROSS JOIN LATERAL (SELECT 'pg_type'::regclass, t.oid
               UNION ALL SELECT 'pg_class'::regclass, t.typrelid
               UNION ALL SELECT 'pg_constraint'::regclass, k.oid FROM pg_constraint AS k
                   WHERE k.contypid = t.oid) AS o (class, oid)
           JOIN pg_depend AS d ON d.classid = o.class AND d.objid = o.oid AND d.refclassid = 'pg_type'::regclass),
finding (rank, thing, problem, owner) AS (
    SELECT 1, 'schema embedsidecar', 'belongs to', our.nspowner FROM our
        WHERE our.nspowner NOT IN (SELECT f.oid FROM friend AS f)
    UNION ALL
    SELECT 2, 'relation ' || r.oid::regclass::text, 'belongs to', r.relowner
    FROM   relation AS r WHERE r.relowner NOT IN (SELECT f.oid FROM friend AS f)
        AND NOT (r.inside AND r.relowner IN (SELECT our.nspowner FROM our))
    UNION ALL
    SELECT 3, 'function ' || p.oid::regprocedure::text, 'belongs to', p.proowner
    FROM   foreign_code AS p JOIN our ON our.oid = p.pronamespace WHERE p.proowner <> our.nspowner
    UNION ALL
    SELECT 4, 'relation ' || r.oid::regclass::text, 'is a ' || CASE r.relkind WHEN 'v' THEN 'view'
        WHEN 'm' THEN 'materialized view' ELSE 'foreign table' END
           || ', where a table is expected', NULL::oid
    FROM   relation AS r WHERE r.relkind NOT IN ('r', 'p', 'S', 'c')
           AND NOT (r.inside AND r.relkind = 'v'
               AND r.relname IN ('status', 'progress', 'tasks', 'dead_letters', 'errors', 'slots', 'workers',
               'pipelines', 'health', 'audit', 'row_state', 'lanes', 'generations', 'indexes', 'configuration',
               'requests', 'finished_tasks'))
    UNION ALL
    SELECT 5, 'relation ' || c.relation::regclass::text, 'runs function ' || c.function::regprocedure::text
        || ', which belongs to', c.proowner
    FROM   code AS c WHERE c.relation IN (SELECT r.oid FROM relation AS r)
    UNION ALL
    SELECT 5, 'relation ' || u.relation::regclass::text, 'uses the type ' || u.type::regtype::text
        || ', which runs function ' || c.function::regprocedure::text || ', which belongs to', c.proowner
    FROM   used AS u JOIN code AS c ON c.type = u.type
    UNION ALL
    SELECT 6, 'relation ' || r.oid::regclass::text, 'has the trigger ' || quote_ident(t.tgname)
        || ', which is none of ours', NULL::oid
    FROM   relation AS r JOIN pg_trigger AS t ON t.tgrelid = r.oid JOIN pg_proc AS p ON p.oid = t.tgfoid
    WHERE  NOT t.tgisinternal AND (NOT r.inside OR p.oid < 16384 OR p.proowner NOT IN (SELECT f.oid FROM friend AS f))
    -- deleting a vector fires triggers of the table that refers to it, until 17 with the rights of the deleting role
    UNION ALL
    SELECT 6, 'relation ' || r.oid::regclass::text, 'is referred to by the foreign key ' || quote_ident(k.conname)
        || ' of '
           || k.conrelid::regclass::text || ', which belongs to', c.relowner
    FROM   relation AS r JOIN pg_constraint AS k ON k.confrelid = r.oid AND k.contype = 'f'
        JOIN pg_class AS c ON c.oid = k.conrelid
    WHERE  c.relowner NOT IN (SELECT f.oid FROM friend AS f)
    UNION ALL
    SELECT 7, 'relation ' || r.oid::regclass::text, 'has the rule ' || quote_ident(w.rulename)
        || ', which is none of ours', NULL::oid
    FROM   relation AS r JOIN pg_rewrite AS w ON w.ev_class = r.oid WHERE r.relkind IN ('r', 'p')
    UNION ALL
    SELECT 8, 'relation ' || r.oid::regclass::text, 'has row-level security', NULL::oid FROM relation AS r
        WHERE r.inside AND r.relrowsecurity
    UNION ALL
    SELECT 9, 'relation ' || u.relation::regclass::text, 'uses the ' || CASE t.typtype WHEN 'd' THEN 'domain '
        ELSE 'type ' END || t.oid::regtype::text || ', whose constraints are those of', t.typowner
    FROM   used AS u JOIN pg_type AS t ON t.oid = u.type
    WHERE  t.typtype IN ('c', 'd', 'm', 'r') AND t.typowner NOT IN (SELECT f.oid FROM friend AS f))
SELECT n.thing, n.problem, coalesce(pg_get_userbyid(n.owner)::text, '') AS owner
FROM   finding AS n ORDER BY n.rank, n.thing, n.problem LIMIT 5;
