-- nothing_to_do: whether a sidecar of @slot has nothing to do until something changes, and the name of its publication.
-- Tasks of paused pipelines wait for a resume.
-- Rows: one; none without a checkpoint. Locks: none. Index: those of tasks by state, and primary keys.
SELECT NOT EXISTS (SELECT FROM embedsidecar.pipeline AS p
                   WHERE  p.slot_name = c.slot_name
                   AND   (p.wish IS NOT NULL AND p.wish ->> 'problem' IS NULL OR p.beside IS NOT NULL AND NOT p.served
                          OR EXISTS (SELECT FROM embedsidecar.scan AS s WHERE s.pipeline_id = p.pipeline_id
                                     AND (s.phase <> 'done' OR s.started < s.requested))
                          OR EXISTS (SELECT FROM embedsidecar.lease AS l WHERE l.pipeline_id = p.pipeline_id
                                     AND l.leased_until >= now())
                          OR EXISTS (SELECT FROM embedsidecar.batch_job AS j WHERE j.pipeline_id = p.pipeline_id
                                     AND j.state <> 'ended')
                          OR p.enabled AND i.enabled
                             -- not EXISTS, which may become a hash of all tasks
                             AND coalesce((SELECT true FROM embedsidecar.task AS t
                                           WHERE t.state = 'todo' AND t.pipeline_id = p.pipeline_id LIMIT 1),
                                          (SELECT true FROM embedsidecar.task AS t
                                           WHERE t.state = 'retrying' AND t.pipeline_id = p.pipeline_id LIMIT 1),
                                          false)))
       AND NOT EXISTS (SELECT FROM embedsidecar.aside)
       AND NOT EXISTS (SELECT FROM embedsidecar.request AS r WHERE r.state IN ('waiting', 'to_plan')
                       AND r.slot_name = c.slot_name)
           AS nothing,
       c.publication::text AS publication
FROM   embedsidecar.lsn_checkpoint AS c CROSS JOIN embedsidecar.installation AS i
WHERE  c.slot_name = @slot::text::name;
