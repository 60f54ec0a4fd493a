-- note_comparison: record how far the results of a next generation equal those of the one that serves.
-- Rows: none. Locks: the row of the next generation. Index: the number of a pipeline.
SELECT embedsidecar.note_comparison(@pipeline_id::integer, @overlap::double precision, @least::double precision,
    @questions::integer);
