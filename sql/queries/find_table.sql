-- find_table: what the catalogue says of a table. triggers: some of the user's fire on an UPDATE of it, or of a
-- partition. unsent: its replica identity is FULL, and it has a generated column, which we do not publish: then
-- PostgreSQL 18 refuses its UPDATEs and DELETEs.
-- @table: its number; NULL: it is found by @schema and @name.
-- Rows: at most one. Locks: none.
SELECT c.oid, n.nspname::text AS schema, c.relname::text AS name, c.relkind::text AS kind,
    c.relpersistence::text AS persistence,
    c.relreplident::text AS identity, pg_get_userbyid(c.relowner)::text AS owner, pg_has_role(c.relowner,
    'USAGE') AS owned_by_us,
    EXISTS (SELECT FROM pg_inherits i JOIN pg_class child ON child.oid = i.inhrelid WHERE i.inhparent = c.oid
    AND NOT child.relispartition) AS children,
    EXISTS (SELECT FROM pg_trigger t WHERE NOT t.tgisinternal AND t.tgenabled <> 'D' AND t.tgtype & 16 <> 0
    AND t.tgrelid IN (
        WITH RECURSIVE tree AS (SELECT c.oid AS relid UNION ALL SELECT h.inhrelid FROM tree
        JOIN pg_inherits h ON h.inhparent = tree.relid) SELECT relid FROM tree)) AS triggers,
    current_setting('server_version_num')::integer >= 180000 AND c.relkind = 'r' AND c.relreplident = 'f'
        AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attgenerated <> ''
            AND NOT a.attisdropped) AS unsent,
    row_security_active(c.oid) AS row_security, current_user::text AS reader
FROM   pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE  c.oid = coalesce(@table::oid, (SELECT k.oid FROM pg_class k JOIN pg_namespace m ON m.oid = k.relnamespace
        WHERE m.nspname = @schema AND k.relname = @name));
