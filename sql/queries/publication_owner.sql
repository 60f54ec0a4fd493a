-- publication_owner: whose a publication is, and whether that is no stranger: a superuser, the current role or one that
-- it may act as, someone who is trusted, or the owner of one of its tables.
-- @trusted: whom the configuration names. @tables: those that it sends.
-- Rows: at most one. Locks: none.
SELECT o.rolname::text, o.rolsuper OR o.rolname = current_user OR o.rolname = ANY (@trusted::text[])
           OR pg_has_role(o.oid, session_user, 'MEMBER')
           OR EXISTS (SELECT FROM pg_class AS c WHERE c.oid = ANY (@tables::oid[]) AND c.relowner = o.oid)
FROM   pg_publication AS b JOIN pg_roles AS o ON o.oid = b.pubowner
WHERE  b.pubname = @name;
