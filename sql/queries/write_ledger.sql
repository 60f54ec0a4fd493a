-- write_ledger: the fence of a write-back: record what is written for rows whose entry is still the one that was read
-- with the row, and delete the entries of rows that are gone. A row that is missing in the result was written by
-- another session since: nothing of it may be written.
-- Parameters: arrays of one length, one element per key; versions are xmin of the entry that was read, NULL if there
-- was none; gone: delete the entry. Either @place is that of the lease, or @slot and @epoch are those of a streamer
-- that works without one. The entry is first found by its key and then accessed by ctid: with old statistics a planner
-- may assume one entry in a pipeline and read all of it. A planner knows how large a table is, so a join by ctid costs
-- what it should.
-- Rows: the keys that were written. Locks: the ledger rows. Index: primary key.
WITH input AS MATERIALIZED (
    SELECT i.*, l.ctid AS at
    FROM   unnest(@row_key::text[], @version::text[], @gone::boolean[], @source_hash::bytea[], @text_hash::bytea[],
        @vector_hash::bytea[], @lsn::pg_lsn[], @skipped::bytea[], @norm_hash::bytea[], @ignored::boolean[])
           AS i (row_key, version, gone, source_hash, text_hash, vector_hash, lsn, skipped, norm_hash, ignored)
           LEFT JOIN LATERAL (SELECT g.ctid FROM embedsidecar.ledger AS g
                              WHERE g.pipeline_id = @pipeline_id AND g.row_key = i.row_key
                                  AND g.xmin::text = i.version OFFSET 0) AS l ON true
    WHERE  EXISTS (SELECT FROM embedsidecar.lease AS l JOIN embedsidecar.pipeline AS p ON p.pipeline_id = l.pipeline_id
        AND p.lease_epoch = l.epoch
                   WHERE @slot::name IS NULL AND l.pipeline_id = @pipeline_id AND l.place = @place
                       AND p.generation = @generation
                         AND l.timeline = ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1,
                             8))::bit(32)::integer)
           OR EXISTS (SELECT FROM embedsidecar.lsn_checkpoint AS c
               JOIN embedsidecar.pipeline AS p ON p.pipeline_id = @pipeline_id
                      WHERE c.slot_name = @slot::name AND c.epoch = @epoch::bigint AND p.generation = @generation
                            AND c.timeline = ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1,
                                8))::bit(32)::integer)
    ORDER BY i.row_key COLLATE "C"
), changed AS (
    UPDATE embedsidecar.ledger AS l
    SET    source_hash = i.source_hash, text_hash = i.text_hash, vector_hash = i.vector_hash, generation = @generation,
        lsn = i.lsn, written_at = now(), skipped = i.skipped, norm_hash = i.norm_hash,
        ignored = i.ignored
    FROM   input AS i
    WHERE  l.ctid = i.at AND l.xmin::text = i.version AND NOT i.gone
    RETURNING l.row_key
), made AS (
    INSERT INTO embedsidecar.ledger AS l (pipeline_id, row_key, source_hash, text_hash, vector_hash, generation, lsn,
        skipped, norm_hash, ignored)
    SELECT @pipeline_id, i.row_key, i.source_hash, i.text_hash, i.vector_hash, @generation, i.lsn, i.skipped,
        i.norm_hash, i.ignored
    FROM   input AS i
    WHERE  i.version IS NULL AND NOT i.gone
    ORDER BY i.row_key COLLATE "C" -- the order of changes that are written without tasks: two orders could deadlock
    ON CONFLICT (pipeline_id, row_key) DO NOTHING
    RETURNING l.row_key
), forgotten AS (
    DELETE FROM embedsidecar.ledger AS l USING input AS i WHERE l.ctid = i.at AND l.xmin::text = i.version AND i.gone
    RETURNING l.row_key
)
SELECT row_key FROM changed UNION ALL SELECT row_key FROM made UNION ALL SELECT row_key FROM forgotten
UNION ALL SELECT i.row_key FROM input AS i WHERE i.gone AND i.version IS NULL;
