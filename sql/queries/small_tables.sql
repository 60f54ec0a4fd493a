-- small_tables: the source tables that can be counted quickly, many in one statement: plain tables of a few megabytes
-- without inheritance, by the last VACUUM, that this role may read, and whose reading runs no code of untrusted roles.
-- A plan may evaluate what is in an index or in statistics. The owner of a schema may put another table in its place.
-- @most: rows beyond which none is counted.
-- Rows: a schema and a name each. Locks: none.
SELECT DISTINCT n.nspname::text, c.relname::text
FROM   embedsidecar.pipeline AS p JOIN pg_class AS c ON c.oid = p.table_oid
       JOIN pg_namespace AS n ON n.oid = c.relnamespace JOIN pg_roles AS o ON o.oid = c.relowner
WHERE  p.status = 'active' AND c.relkind = 'r' AND c.relpages <= 1000 AND c.reltuples <= @most
       AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
       AND NOT EXISTS (SELECT FROM pg_inherits AS h WHERE h.inhrelid = c.oid)
       AND (NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.rolsuper AND r.rolname IN (session_user, current_user))
           OR o.rolsuper AND EXISTS (SELECT FROM pg_roles AS r WHERE r.rolsuper AND r.oid = CASE n.nspowner
               WHEN to_regrole('pg_database_owner') THEN (SELECT d.datdba FROM pg_database AS d
                   WHERE d.datname = current_database()) ELSE n.nspowner END)
           AND NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid
               AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL))
           AND NOT EXISTS (SELECT FROM pg_statistic_ext AS s WHERE s.stxrelid = c.oid));
