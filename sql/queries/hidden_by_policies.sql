-- hidden_by_policies: the first of @tables (which a text is made from) and their embedding table whose row level
-- security does not apply to the current role.
-- @into: the embedding table as in a statement; '' if there is none.
-- Rows: one, NULL when there is none. Locks: none.
SELECT min(c.oid::regclass::text)
FROM   pg_class AS c
WHERE  (c.oid = ANY (@tables::oid[]) OR c.oid = to_regclass(nullif(@into, ''))) AND c.relrowsecurity
    AND NOT row_security_active(c.oid);
