-- volatile_function: a function, by its number, that may return another value for the same arguments each time. Users'
-- functions that are declared stable count as stable.
-- Rows: one; NULL: none does. Locks: none.
SELECT min(p.oid::regprocedure::text)
FROM   pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE  p.oid = ANY (@functions) AND (p.provolatile = 'v' OR n.nspname = 'pg_catalog' AND p.provolatile = 's'
        AND (p.proname IN ('now', 'statement_timestamp', 'transaction_timestamp', 'current_setting')
            OR p.proname = 'age' AND p.pronargs = 1));
