-- count_known: how many rows of some pipelines have a vector that is known to be of their current text: a ledger entry
-- of this generation, no task, and no change that was set aside. It reads the whole ledger of the pipelines: do not
-- call it often.
-- Rows: one for each pipeline that has any. Locks: none. Index: none for the tasks, of which there are few or the
-- ledger is still small, and for what was set aside; primary key of ledger.
SELECT w.pipeline_id, count(*)
FROM   unnest(@pipelines::integer[], @generations::integer[]) AS w (pipeline_id, generation)
       JOIN embedsidecar.ledger AS l ON l.pipeline_id = w.pipeline_id AND l.generation = w.generation
WHERE  NOT EXISTS (SELECT FROM embedsidecar.task AS t WHERE t.row_key = l.row_key
           AND t.pipeline_id = l.pipeline_id)
       AND NOT EXISTS (SELECT FROM embedsidecar.aside AS a WHERE a.row_key = l.row_key
           AND a.pipeline_id = l.pipeline_id)
GROUP  BY w.pipeline_id;
