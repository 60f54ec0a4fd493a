-- note_wish: delete a requested model change that is done, or record why it is not.
-- Rows: one. Locks: the pipeline row. Index: primary key, by a function.
SELECT embedsidecar.note_wish(@pipeline_id::integer, @model::text, @problem::text);
