-- What those who write rows say of their changes.

ALTER TABLE embedsidecar.task ADD COLUMN seen bytea;
COMMENT ON COLUMN embedsidecar.task.seen IS
    'The row as its writer saw it who says that it needs no new vector: hashes of its watched columns. NULL: it may '
    'need one.';
ALTER TABLE embedsidecar.ledger ADD COLUMN skipped bytea;
COMMENT ON COLUMN embedsidecar.ledger.skipped IS
    'SHA-256 of the text of which its writer says that it needs no new vector: the vector is of the text before, or '
    'there is none. NULL: nobody says so.';
ALTER TABLE embedsidecar.lsn_checkpoint ADD COLUMN hints_ignored bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN embedsidecar.lsn_checkpoint.hints_ignored IS
    'Hints that embedsidecar.hint has not made: somebody has written them who may not. Written once a minute.';
ALTER TABLE embedsidecar.pipeline ADD COLUMN priority_expression text;
COMMENT ON COLUMN embedsidecar.pipeline.priority_expression IS
    'How urgent a change of a row is, by the row: gives the name of a lane. NULL: the column lane says it.';

-- Functions that have another form now.
DROP FUNCTION IF EXISTS embedsidecar.sign(bytea);
