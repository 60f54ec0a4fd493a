-- table_owner: whether the session's role is a superuser, and whether a table's owner is one, or is trusted.
-- @owner: the owner's name. @trusted: whom the configuration names.
-- Rows: at most one. Locks: none.
SELECT r.rolname::text, r.rolsuper, o.rolsuper OR o.rolname = ANY (@trusted::text[])
FROM   pg_roles AS r, pg_roles AS o
WHERE  r.rolname = session_user AND o.rolname = @owner;
