-- begin_checkpoint: reset the position of a checkpoint before its slot is created. If the program is killed between
-- this and move_checkpoint, the next one knows that the slot is ours.
-- Rows: none. Locks: the checkpoint row. Index: primary key.
INSERT INTO embedsidecar.lsn_checkpoint (slot_name, publication, publication_oid, system_id, timeline, consistent_point,
    lsn)
VALUES (@slot, @publication, 0, @system_id, @timeline, '0/0', '0/0') ON CONFLICT (slot_name) DO NOTHING;
