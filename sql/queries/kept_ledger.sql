-- kept_ledger: the last removed pipeline of column number @column of @table whose ledger fits a pipeline with the same
-- key and model.
-- Rows: one; 0: there is none. Locks: none.
SELECT coalesce((SELECT max(k.pipeline_id) FROM embedsidecar.kept_ledger AS k
           WHERE k.table_oid = @table AND k.column_number = @column AND k.key_columns = @keys::text[]::name[]
               AND k.fingerprint = @fingerprint), 0);
