-- A generation stays beside the other one when that gets another number (renew_pipeline).
ALTER TABLE embedsidecar.pipeline DROP CONSTRAINT pipeline_beside_fkey;
ALTER TABLE embedsidecar.pipeline ADD CONSTRAINT pipeline_beside_fkey
    FOREIGN KEY (beside) REFERENCES embedsidecar.pipeline ON UPDATE CASCADE ON DELETE CASCADE;
