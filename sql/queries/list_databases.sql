-- list_databases: the databases of this server that accept connections and are not templates.
-- Rows: one each, with its number and name. Locks: none.
SELECT d.oid::bigint AS oid, d.datname::text AS name
FROM   pg_database AS d
WHERE  d.datallowconn AND NOT d.datistemplate AND d.datconnlimit <> -2 -- half dropped
ORDER BY d.datname;
