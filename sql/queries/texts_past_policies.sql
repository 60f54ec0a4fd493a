-- texts_past_policies: roles that may read the texts of chunks in an embedding table, but not all rows of the tables
-- that the texts are made from, or nothing of one of them. Roles that write vectors are left out.
-- @into: the embedding table as in a statement. @tables: the tables that texts are made from.
-- Rows: the first few roles, or PUBLIC. Reads only pg_catalog. Locks: none.
SELECT coalesce(r.rolname::text, 'PUBLIC')
FROM   pg_class AS v
       CROSS JOIN LATERAL (
           SELECT a.grantee FROM aclexplode(v.relacl) AS a WHERE a.privilege_type = 'SELECT'
           UNION SELECT a.grantee FROM pg_attribute AS t CROSS JOIN aclexplode(t.attacl) AS a
           WHERE t.attrelid = v.oid AND t.attname = 'chunk_text' AND a.privilege_type = 'SELECT') AS g
       LEFT JOIN pg_roles AS r ON r.oid = g.grantee
WHERE  v.oid = to_regclass(@into) AND NOT v.relrowsecurity AND g.grantee <> v.relowner
       AND NOT EXISTS (SELECT FROM aclexplode(v.relacl) AS w
           WHERE w.grantee = g.grantee AND w.privilege_type = 'INSERT')
       AND EXISTS (SELECT FROM pg_class AS s WHERE s.oid = ANY (@tables::oid[])
           AND (s.relrowsecurity AND NOT coalesce(r.rolsuper OR r.rolbypassrls, false)
               OR NOT has_any_column_privilege(coalesce(r.rolname, 'public'), s.oid, 'SELECT')))
ORDER  BY 1 LIMIT 5;
