-- find_publication: a publication by its name: whose it is, and what it sends. all_kinds: inserts, updates, deletes and
-- TRUNCATE.
-- Rows: at most one. Locks: none.
SELECT oid, pg_get_userbyid(pubowner)::text AS owner, pg_has_role(pubowner, 'USAGE') AS owned_by_us, puballtables,
    pubviaroot,
       pubinsert AND pubupdate AND pubdelete AND pubtruncate AS all_kinds
FROM   pg_publication
WHERE  pubname = @name;
