-- publication_tables: the tables of a publication: their column lists, and whether a row filter hides changes (version
-- 15 and later have both). above: the partitioned tables that it is a partition of.
-- Rows: one for each. Locks: none.
SELECT r.prrelid AS oid, CASE WHEN jsonb_typeof(to_jsonb(r) -> 'prattrs') = 'array' THEN
    ARRAY(SELECT n::int2 FROM jsonb_array_elements_text(to_jsonb(r) -> 'prattrs') AS n) END AS columns,
    to_jsonb(r) ->> 'prqual' IS NOT NULL AS filtered, format('%I.%I', n.nspname, c.relname) AS name,
    ARRAY(SELECT a.relid::oid FROM pg_partition_ancestors(r.prrelid) AS a WHERE a.relid <> r.prrelid) AS above
FROM   pg_publication_rel AS r JOIN pg_class AS c ON c.oid = r.prrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE  r.prpubid = @publication;
