-- note_status: store which pipelines fit their tables, and why the others do not, for queries of the database. The
-- streamer decides whether a table exists and is published: it knows before anyone loads a pipeline.
-- Parameters: arrays of one length, one element per pipeline.
-- Rows: none. Locks: the pipelines that change. Index: primary key.
UPDATE embedsidecar.pipeline AS p
SET    status = i.status, status_detail = i.detail
FROM   unnest(@pipeline_ids::integer[], @statuses::text[], @details::text[]) AS i (pipeline_id, status, detail)
WHERE  p.pipeline_id = i.pipeline_id AND p.status IN ('active', 'misconfigured')
    AND i.status IN ('active', 'misconfigured')
       AND (p.status, p.status_detail) IS DISTINCT FROM (i.status, i.detail);
