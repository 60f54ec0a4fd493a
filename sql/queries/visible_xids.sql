-- visible_xids: whether all of some transactions have ended in this statement's snapshot. pgoutput gives the low half
-- of a transaction id; the high half is chosen so that the id is nearest to the current one.
-- Rows: one. Locks: none.
SELECT bool_and(pg_visible_in_snapshot((e.top - ((e.top - i.xid32 + 2147483648) & 4294967295) + 2147483648)::text::xid8,
    e.snapshot))
FROM   unnest(@xids::bigint[]) AS i (xid32)
       CROSS JOIN (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS top,
           pg_current_snapshot() AS snapshot) AS e;
