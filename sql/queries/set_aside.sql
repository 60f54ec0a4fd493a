-- set_aside: store changes and scan requests that cannot become tasks now because their rows are locked. It waits for
-- nothing.
-- Parameters: arrays of one length, one element per change; and the pipelines of which every row is to be compared,
-- with the reason.
-- Rows: none. Locks: none that others wait for. Index: none.
INSERT INTO embedsidecar.aside (pipeline_id, row_key, lane, xid, first_lsn, last_lsn, committed_at, reason)
SELECT i.pipeline_id, i.row_key, i.lane, i.xid, i.first_lsn, i.last_lsn, i.committed_at, ''
FROM   unnest(@pipeline_ids::integer[], @row_keys::text[], @lanes::smallint[], @xids::bigint[], @first_lsns::pg_lsn[],
    @last_lsns::pg_lsn[],
              @committed_ats::timestamptz[]) AS i (pipeline_id, row_key, lane, xid, first_lsn, last_lsn, committed_at)
UNION ALL
SELECT s, NULL, 0, 3, '0/0', '0/0', now(), @reason FROM unnest(@scans::integer[]) AS s;
