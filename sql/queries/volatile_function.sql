-- volatile_function: one of functions, by their numbers, that may give another value for the same arguments each time.
-- Functions of users' that are declared stable are taken at their word.
-- Rows: one; NULL: none does. Locks: none.
SELECT min(p.oid::regprocedure::text)
FROM   pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE  p.oid = ANY (@functions) AND (p.provolatile = 'v' OR n.nspname = 'pg_catalog' AND p.provolatile = 's'
        AND (p.proname IN ('now', 'statement_timestamp', 'transaction_timestamp', 'current_setting')
            OR p.proname = 'age' AND p.pronargs = 1));
