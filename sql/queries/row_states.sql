-- row_states: the states of the rows @row_keys of pipeline @pipeline, as embedsidecar.row_state shows them.
-- Rows: one for each that was ever processed, or waits for it. Locks: none. Index: primary key of ledger, unique key of
-- task; the limits keep the planner from a join that reads all of either.
SELECT k.row_key AS key,
       CASE WHEN t.state IN ('failed', 'cancelled') THEN t.state::text
            WHEN l.row_key IS NULL THEN 'pending'
            WHEN length(l.vector_hash) = 0 THEN 'stale'
            WHEN l.skipped IS NOT NULL AND t.state IS NULL AND l.generation = p.generation THEN 'skipped'
            WHEN l.text_hash IS NULL OR l.vector_hash = '\x0000000000000000' THEN CASE WHEN t.state IS NULL
                AND l.generation = p.generation THEN 'no_text' ELSE 'pending' END
            WHEN t.state IS NULL AND l.generation = p.generation THEN 'embedded' ELSE 'stale' END AS state,
       l.written_at, t.committed_at AS changed_at
FROM   embedsidecar.pipeline AS p CROSS
    JOIN (SELECT DISTINCT g.row_key FROM unnest(@row_keys::text[]) AS g (row_key)) AS k
       LEFT JOIN LATERAL (SELECT o.* FROM embedsidecar.ledger AS o WHERE o.pipeline_id = p.pipeline_id
           AND o.row_key = k.row_key LIMIT 1) AS l ON true
       LEFT JOIN LATERAL (SELECT o.* FROM embedsidecar.task AS o WHERE o.pipeline_id = p.pipeline_id
           AND o.row_key = k.row_key LIMIT 1) AS t ON true
WHERE  p.name = @pipeline AND (l.row_key IS NOT NULL OR t.row_key IS NOT NULL)
ORDER  BY k.row_key COLLATE "C";
