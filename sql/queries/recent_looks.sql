-- recent_looks: how many looks by way of the queue ended in each of the last @minutes, of each pipeline, and how many
-- of them with an error. History is a ring of @buckets partitions, each for @span seconds of this server's clock: two
-- of them are read.
-- Rows: at most @minutes per pipeline. Locks: none. Index: none; the partitions are read from end to end.
SELECT h.pipeline_id, floor(extract(epoch FROM now() - h.finished_at) / 60)::integer AS minutes_ago, count(*) AS looks,
       count(*) FILTER (WHERE h.error_code IS NOT NULL) AS failed
FROM   embedsidecar.history AS h
WHERE  h.bucket IN ((floor(extract(epoch FROM now()) / @span::integer)::bigint % @buckets::integer)::smallint,
                    (floor((extract(epoch FROM now()) - @minutes::integer * 60) / @span::integer)::bigint %
                        @buckets::integer)::smallint)
       AND h.finished_at > now() - @minutes::integer * interval '1 minute' AND h.finished_at <= now()
GROUP BY 1, 2;
