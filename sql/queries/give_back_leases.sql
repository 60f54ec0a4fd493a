-- give_back_leases: end leases without a result and without counting an attempt. The place 0 stands for a lease whose
-- place is unknown: it is one of those that may be live.
-- Parameters: arrays of one length, one element per lease.
-- Rows: none. Locks: the leases. Index: primary key.
DELETE FROM embedsidecar.lease AS l
USING  unnest(@pipeline_ids::integer[], @tokens::bigint[], @places::bigint[]) AS i (pipeline_id, token, place)
       LEFT JOIN embedsidecar.turn AS t USING (pipeline_id)
WHERE  l.pipeline_id = i.pipeline_id AND l.place BETWEEN CASE i.place WHEN 0 THEN coalesce(t.live, 0) ELSE i.place END
    AND CASE i.place WHEN 0 THEN 9223372036854775807 ELSE i.place END AND l.token = i.token;
