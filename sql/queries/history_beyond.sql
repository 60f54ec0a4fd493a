-- history_beyond: the buckets of history that are too old to be kept, for all that is newer takes @most bytes with
-- them.
-- Rows: their numbers. Locks: none. Index: none; only the sizes of files are asked for.
SELECT b.bucket::integer
FROM  (SELECT s.bucket, s.bytes, sum(s.bytes) OVER (ORDER BY s.age) AS with_newer
       FROM  (SELECT n.age,
           (floor(extract(epoch FROM now()) / @span::integer)::bigint - n.age + @buckets::integer) %
           @buckets::integer AS bucket FROM generate_series(0, @buckets::integer - 1) AS n (age)) AS r
             CROSS JOIN LATERAL (SELECT r.age, r.bucket,
                 pg_total_relation_size(format('embedsidecar.history_%s', r.bucket)::regclass) AS bytes,
                                        pg_relation_size(format('embedsidecar.history_%s', r.bucket)::regclass) AS
                                            filled) AS s
       WHERE s.filled > 0) AS b
WHERE  b.with_newer > @most::bigint
ORDER BY b.bucket;
