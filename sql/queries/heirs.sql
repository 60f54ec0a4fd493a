-- heirs: how many of some tables inherit, at any depth, from another.
-- @among: their numbers.
-- Rows: one. Locks: none.
WITH RECURSIVE below AS (
    SELECT @table::oid AS relid
    UNION
    SELECT h.inhrelid FROM below AS b JOIN pg_inherits AS h ON h.inhparent = b.relid
)
SELECT count(*)::int FROM below WHERE relid <> @table AND relid = ANY (@among);
