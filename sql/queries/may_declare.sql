-- may_declare: the rights of a role that requested a pipeline: whether it may act as this session's role anyway (or
-- @trusted names it), and over which of @tables, written as schema and table or given by @oids (0: none), it lacks the
-- owner's rights. A table that does not exist yet counts as its own if it may create it.
-- Rows: one; none: the role no longer exists. Reads only pg_catalog. Locks: none.
SELECT (TRUSTED r) AS trusted,
       ARRAY(SELECT format('%I.%I', t.schema, t.name)
             FROM   unnest(@schemas::text[], @tables::text[], @oids::oid[]) AS t (schema, name, oid)
                    LEFT JOIN pg_namespace AS n ON n.nspname = t.schema
                    LEFT JOIN pg_class AS c ON c.oid = coalesce(nullif(t.oid, 0), (SELECT o.oid FROM pg_class AS o
                        WHERE o.relnamespace = n.oid AND o.relname = t.name))
             WHERE  NOT coalesce(pg_has_role(r.oid, c.relowner, 'USAGE'), t.oid = 0
                        AND has_schema_privilege(r.oid, n.oid, 'CREATE'), false)
             ORDER BY 1) AS others
FROM   pg_roles AS r WHERE r.oid = @oid AND r.rolname = @role;
