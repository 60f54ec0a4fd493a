-- begin_checkpoint: a slot is about to be made: its checkpoint has no position yet. A program killed between this and
-- move_checkpoint leaves a slot that the next one knows to be ours.
-- Rows: none. Locks: the checkpoint row. Index: primary key.
INSERT INTO embedsidecar.lsn_checkpoint (slot_name, publication, publication_oid, system_id, timeline, consistent_point,
    lsn)
VALUES (@slot, @publication, 0, @system_id, @timeline, '0/0', '0/0') ON CONFLICT (slot_name) DO NOTHING;
