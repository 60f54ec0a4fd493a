-- unsteady_functions: warnings about functions, by their numbers, that may return another text for the same row.
-- Rows: a sentence each. Locks: none.
SELECT CASE
        WHEN p.provolatile = 'v'
        THEN format('calls %s, which is volatile: the same row can give another text each time', p.oid::regprocedure)
        WHEN n.nspname <> 'pg_catalog'
        THEN format('calls %s, which may read more than the row: a change of that goes unnoticed', p.oid::regprocedure)
        ELSE format('calls %s: the text is only computed again when the row changes', p.oid::regprocedure) END
FROM   pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE  p.oid = ANY (@functions) AND (p.provolatile = 'v' OR p.provolatile = 's' AND (n.nspname <> 'pg_catalog'
        OR p.proname IN ('now', 'statement_timestamp', 'transaction_timestamp', 'current_setting') OR p.proname = 'age'
        AND p.pronargs = 1))
ORDER BY 1;
