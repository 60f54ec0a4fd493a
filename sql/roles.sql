-- Least privilege for `embedsidecar run`: a login role that may replicate, read the sources and write only what is ours.
-- Run as the owner of the source tables and of the schema embedsidecar, after `embedsidecar init`.
-- The last part is an example: `embedsidecar roles` with a database adds the grants for each pipeline, and --role names the role.
CREATE ROLE embedsidecar_run LOGIN REPLICATION;
GRANT USAGE ON SCHEMA embedsidecar TO embedsidecar_run;
GRANT SELECT ON ALL TABLES IN SCHEMA embedsidecar TO embedsidecar_run;
GRANT INSERT, UPDATE, DELETE ON embedsidecar.task, embedsidecar.ledger, embedsidecar.worker TO embedsidecar_run;
GRANT INSERT ON embedsidecar.history TO embedsidecar_run;
GRANT TRUNCATE ON embedsidecar.history_0, embedsidecar.history_1, embedsidecar.history_2, embedsidecar.history_3,
    embedsidecar.history_4, embedsidecar.history_5, embedsidecar.history_6, embedsidecar.history_7 TO embedsidecar_run;
GRANT INSERT, UPDATE ON embedsidecar.scan TO embedsidecar_run;
GRANT UPDATE ON embedsidecar.lsn_checkpoint TO embedsidecar_run;
GRANT UPDATE (status, status_detail, catalogue, table_schema, table_name) ON embedsidecar.pipeline TO embedsidecar_run;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA embedsidecar TO embedsidecar_run;

-- A pipeline into a column of the source table:
--   GRANT SELECT (id, title, body, embedding), UPDATE (embedding) ON public.docs TO embedsidecar_run;
-- A pipeline into an embedding table:
--   GRANT SELECT (id, title, body) ON public.docs TO embedsidecar_run;
--   GRANT SELECT, INSERT, UPDATE, DELETE ON public.docs_embedding TO embedsidecar_run;
-- Schemas other than public also need: GRANT USAGE ON SCHEMA ... TO embedsidecar_run;
-- A source table with row-level security also needs: ALTER ROLE embedsidecar_run BYPASSRLS (superuser), or the role
-- would see no rows where there are some.
