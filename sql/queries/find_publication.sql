-- find_publication: a publication by its name: its owner, whether this session trusts the owner, and what it publishes.
-- all_kinds: it publishes inserts, updates, deletes and TRUNCATE.
-- @trusted: the roles that the configuration names.
-- Rows: at most one. Locks: none.
SELECT b.oid, o.rolname::text AS owner, pg_has_role(b.pubowner, 'USAGE') AS owned_by_us,
       (TRUSTED o) AS trusted, b.puballtables AS all_tables, b.pubviaroot AS via_root,
       b.pubinsert AND b.pubupdate AND b.pubdelete AND b.pubtruncate AS all_kinds
FROM   pg_publication AS b JOIN pg_roles AS o ON o.oid = b.pubowner
WHERE  b.pubname = @name;
