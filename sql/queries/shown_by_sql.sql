-- shown_by_sql: how a search by SQL shows the rows of a pipeline: the statement of their text ('': none), the source
-- table, which of @columns it has, and which rights the role lacks to read the text and these columns.
-- Rows: one. Locks: none.
SELECT coalesce(t.statement, ''), c.oid::regclass::text, CASE c.relkind WHEN 'p' THEN '' ELSE 'ONLY ' END,
       current_user::text, a.names, coalesce(embedsidecar.missing_grants(t.tables, t.columns), ''),
       coalesce(embedsidecar.missing_grants(array_fill(c.oid, ARRAY[cardinality(a.names)]), a.names), '')
FROM   embedsidecar.text_statement(@pipeline) AS t JOIN pg_class AS c ON c.oid = t.tables[1]
       CROSS JOIN LATERAL (SELECT ARRAY(SELECT a.attname::text FROM pg_attribute AS a WHERE a.attrelid = c.oid
           AND a.attnum > 0 AND a.attname = ANY (@columns::text[])) AS names) AS a;
