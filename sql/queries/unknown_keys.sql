-- unknown_keys: which of @row_keys the pipeline @pipeline does not know: they have no ledger entry and no open task.
-- Rows: the keys, in their order. Locks: none. Index: primary keys of ledger and task; the limits keep the planner from
-- a join that reads all of either.
SELECT k.row_key
FROM   embedsidecar.pipeline AS p, unnest(@row_keys::text[]) WITH ORDINALITY AS k(row_key, place)
WHERE  p.name = @pipeline
AND    (SELECT true FROM embedsidecar.ledger AS l WHERE l.pipeline_id = p.pipeline_id AND l.row_key = k.row_key
    LIMIT 1) IS NULL
AND    (SELECT true FROM embedsidecar.task AS t WHERE t.pipeline_id = p.pipeline_id AND t.row_key = k.row_key
    LIMIT 1) IS NULL
ORDER  BY k.place;
