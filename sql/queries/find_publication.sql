-- find_publication: a publication by its name: its owner and what it publishes. trusted: its owner is a superuser, the
-- current role, a role that it may act as, or a trusted role. all_kinds: it publishes inserts, updates, deletes and
-- TRUNCATE.
-- @trusted: the roles that the configuration names.
-- Rows: at most one. Locks: none.
SELECT b.oid, o.rolname::text AS owner, pg_has_role(b.pubowner, 'USAGE') AS owned_by_us,
       o.rolsuper OR o.rolname = current_user OR o.rolname = ANY (@trusted::text[])
           OR pg_has_role(o.oid, session_user, CASE WHEN current_setting('server_version_num')::integer < 160000
            THEN 'MEMBER' ELSE 'USAGE, SET, MEMBER WITH ADMIN OPTION' END) AS trusted,
       b.puballtables AS all_tables, b.pubviaroot AS via_root,
       b.pubinsert AND b.pubupdate AND b.pubdelete AND b.pubtruncate AS all_kinds
FROM   pg_publication AS b JOIN pg_roles AS o ON o.oid = b.pubowner
WHERE  b.pubname = @name;
