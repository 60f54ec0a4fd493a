-- Texts of which rows of other tables are a part.

ALTER TABLE embedsidecar.pipeline ADD COLUMN joins jsonb;
COMMENT ON COLUMN embedsidecar.pipeline.joins IS
    'Tables whose rows have a part in the text, with what the catalog says of them. NULL: none.';
ALTER TABLE embedsidecar.pipeline ADD COLUMN joined_text text;
COMMENT ON COLUMN embedsidecar.pipeline.joined_text IS
    'The SQL of the whole text of the row called r, where tables are joined.';
ALTER TABLE embedsidecar.scan ADD COLUMN owners text[];
COMMENT ON COLUMN embedsidecar.scan.owners IS
    'Rows that are compared, named by what is joined to them: the place of the joined table, and the values by which '
    'its row hangs on theirs. With partitions NULL, too: every row is.';
