-- row_facts: what queue, ledger and history have about the row @row_key of pipeline @pipeline_id, as JSON.
-- Rows: one. Locks: none. Index: unique key of task, task_todo_idx, primary keys of lease and ledger, that of each
-- partition of history, by a function.
SELECT embedsidecar.row_facts(@pipeline_id::integer, @row_key::text);
