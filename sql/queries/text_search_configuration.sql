-- text_search_configuration: a text search configuration by its name, the server's own first; '': the database's
-- default.
-- Rows: at most one. Locks: none.
SELECT n.nspname::text, c.cfgname::text
FROM   pg_ts_config AS c JOIN pg_namespace AS n ON n.oid = c.cfgnamespace
WHERE  CASE WHEN @name = '' THEN c.oid = get_current_ts_config() ELSE c.cfgname = @name END
ORDER BY n.nspname = 'pg_catalog' DESC, n.nspname
LIMIT  1;
