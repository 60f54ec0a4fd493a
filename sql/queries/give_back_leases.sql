-- give_back_leases: end some leases without a result and without counting a try. The place of one of which nobody heard is not known: it
-- lies between two.
-- Parameters: arrays of one length, one element per lease.
-- Rows: none. Locks: the leases. Index: primary key.
DELETE FROM embedsidecar.lease AS l
USING  unnest(@pipeline_ids::integer[], @tokens::bigint[], @lows::bigint[], @highs::bigint[]) AS i (pipeline_id, token, low, high)
WHERE  l.pipeline_id = i.pipeline_id AND l.place BETWEEN i.low AND i.high AND l.token = i.token;
