-- usual_search_path: the search_path of applications' sessions in this database: its own setting, else the server's
-- default. Users' triggers were written for it and run under it in a write-back.
-- Rows: one. Locks: none.
SELECT coalesce(
    (SELECT substr(c.setting, length('search_path=') + 1)
     FROM   pg_db_role_setting AS s CROSS JOIN LATERAL unnest(s.setconfig) AS c (setting)
     WHERE  s.setdatabase = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()) AND s.setrole = 0
            AND c.setting LIKE 'search\_path=%'
     LIMIT 1),
    '"$user", public');
