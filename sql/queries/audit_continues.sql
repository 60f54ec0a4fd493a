-- audit_continues: whether @said_by began the action with the entry @audit_id, and about the rows that are chosen now (of keys the first hundred count).
-- Rows: one. Locks: none. Index: primary key.
SELECT EXISTS (
    SELECT FROM embedsidecar.audit_log AS a
    WHERE  a.audit_id = @audit_id AND a.said_by = left(@said_by, 200)
           AND a.arguments - 'pipeline_id' = jsonb_strip_nulls(jsonb_build_object('keys', to_jsonb((@keys::text[])[1:100]), 'keys_given', cardinality(@keys::text[]),
               'class', @class::text, 'code', @code::text, 'older_than', @older_than::interval)));
