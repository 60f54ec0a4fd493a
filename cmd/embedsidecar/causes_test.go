package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestP10_StatusTellsCausesAndWhoIsPaused: status shows failed rows by class and code with an example each, and the
// command that resumes everything that is paused.
func TestP10_StatusTellsCausesAndWhoIsPaused(t *testing.T) {
	t.Parallel()
	s := newStage(t, 5)
	file := filepath.Join(t.TempDir(), "embedsidecar.yaml")
	if err := os.WriteFile(file, []byte(`version: 1
pipelines:
  - {name: docs, table: public.docs, columns: [title, body], into: {column: embedding}}
  - {name: my docs, table: public.docs, columns: [title], into: {table: side}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	s.run(0, "init", "--config", file)
	s.db.MustExec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, state, lane, xid, first_lsn, last_lsn,
		committed_at, due_at, attempt, error_class, error_code, error_message)
		SELECT p.pipeline_id, i::text, (CASE WHEN i < 4 THEN 'failed' ELSE 'retrying' END)::embedsidecar.task_state, 1,
		       '3', '0/1', '0/1', now() - interval '1 h', CASE WHEN i = 4 THEN now() + interval '1 h' END, 8, 'data',
		       'c' || i % 2, 'refused ' || i
		FROM   embedsidecar.pipeline AS p, generate_series(1, 4) AS i WHERE p.name = 'docs'`)
	stdout, _ := s.run(0, "status")
	s.has(stdout, "! docs: 2 rows given up, data c1, such as row 1: refused 1", "! docs: 1 row given up, data c0, row 2: refused 2",
		"! docs: 1 row failed, to be tried again, data c0, row 4: refused 4 (next try in ")
	s.run(0, "pause", "docs", "my docs")
	if stdout, _ = s.run(0, "status"); !strings.Contains(stdout, "embedsidecar resume docs 'my docs'") {
		t.Errorf("two are paused: %s", stdout)
	}
	s.run(0, "pause")
	stdout, _ = s.run(0, "status")
	s.has(stdout, "embedsidecar resume; ", "embedsidecar resume docs 'my docs'")
	s.run(0, "resume", "docs", "my docs")
	if stdout, _ = s.run(0, "status"); strings.Contains(stdout, "embedsidecar resume docs") {
		t.Errorf("all are paused, and none by its name: %s", stdout)
	}
}
