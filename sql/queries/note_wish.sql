-- note_wish: forget a change of a model that was asked for, which is made, or write down why it is not.
-- Rows: one. Locks: the pipeline row. Index: primary key, by a function.
SELECT embedsidecar.note_wish(@pipeline_id::integer, @model::text, @problem::text);
