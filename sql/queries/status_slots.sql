-- status_slots: the state of each slot, and whether a sidecar is about to take it over.
-- Rows: one per slot. Locks: none.
SELECT s.slot_name::text, s.publication::text, s.checkpoint::text, s."exists", s.active, s.making,
    coalesce(s.wal_status, ''), s.safe_wal_bytes, s.lag_bytes,
       coalesce(s.retained_bytes, 0), extract(epoch FROM now() - s.saved_at)::double precision, coalesce(s.held_by, ''),
           s.publication_exists,
       s.changes_unchanged, s.changes_joined, c.hints_ignored, s.other_server, s.elsewhere, s.waits_for, s.state,
           s.status, s.reason, s.hints, s.changes_hands
FROM   embedsidecar.slot_states() AS s JOIN embedsidecar.lsn_checkpoint AS c ON c.slot_name = s.slot_name
ORDER BY s.slot_name;
