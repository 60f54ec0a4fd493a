-- missing_grants: what the current role may not read of the tables that a search reads: columns of the source table,
-- and the embedding table.
-- @into: '' when there is none.
-- Rows: one, the role with the statements that grant it. Locks: none.
SELECT current_user::text, ARRAY(
    SELECT format('GRANT USAGE ON SCHEMA %I TO %I', n.nspname, current_user)
    FROM   pg_namespace AS n
    WHERE  (n.oid = (SELECT c.relnamespace FROM pg_class AS c WHERE c.oid = @table)
               OR n.nspname = @into_schema AND @into <> '')
           AND NOT has_schema_privilege(n.oid, 'USAGE')
    UNION ALL
    SELECT format('GRANT SELECT (%s) ON %I.%I TO %I', string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum),
                  n.nspname, c.relname, current_user)
    FROM   pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace JOIN pg_attribute AS a ON a.attrelid = c.oid
    WHERE  c.oid = @table AND a.attname = ANY (@columns::text[]) AND a.attnum > 0 AND NOT a.attisdropped
           AND NOT has_column_privilege(c.oid, a.attnum, 'SELECT')
    GROUP BY n.nspname, c.relname
    UNION ALL
    SELECT format('GRANT SELECT ON %I.%I TO %I', n.nspname, c.relname, current_user)
    FROM   pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE  n.nspname = @into_schema AND c.relname = @into AND NOT has_table_privilege(c.oid, 'SELECT'));
