-- add_streamed: add how many changes of a slot needed no task since the last call, and how many hints were ignored.
-- Rows: none. Locks: the checkpoint's row. Index: primary key.
UPDATE embedsidecar.lsn_checkpoint AS c
SET    changes_unchanged = c.changes_unchanged + @unchanged, changes_joined = c.changes_joined + @joined,
       hints_ignored = c.hints_ignored + @hints_ignored
WHERE  c.slot_name = @slot;
