package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP8_ARestoredDumpIsTakenUp moves a database to another server with pg_dump and pg_restore. The tables get other
// OIDs; the rows are the same but for one that changes before the sidecar starts.
func TestP8_ARestoredDumpIsTakenUp(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		s := newStage(t, 50, testenv.Major(major))
		s.db.MustExec(`CREATE TABLE notes AS SELECT id, title, body FROM docs; ALTER TABLE notes ADD PRIMARY KEY (id); CREATE TABLE pages (LIKE notes INCLUDING ALL); INSERT INTO pages SELECT id, title, 'page ' || id FROM notes`)
		file := filepath.Join(t.TempDir(), "embedsidecar.yaml")
		const config = `version: 1
pipelines:
  - {name: docs, table: public.docs, columns: [title, body], into: {column: embedding}}
  - {name: notes, table: public.notes, columns: [body, title], into: {table: notes_embedding},
      chunking: {strategy: tokens, tokens: 16}}
  - {name: pages, table: public.pages, columns: [body], into: {table: pages_embedding}}
`
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		tokens := func() (all int64) {
			stdout, _ := s.run(0, "status", "-o", "json")
			for _, p := range decoded[report.Status](t, stdout).Pipelines {
				all += p.Tokens
			}
			return all
		}
		s.run(0, "run", "--once", "--config", file)
		s.run(0, "verify", "--deep", "50")
		paid := tokens()

		server := testenv.Own(t, testenv.Options{Major: major})
		s.moveTo(server)
		s.db.MustExec(`UPDATE docs SET body = 'changed since the dump' WHERE id = 7`)
		for _, name := range []string{"docs", "notes", "pages"} {
			s.becomes(name, health.Copied, "this server is not the one that was set up", "embedsidecar init --adopt")
		}
		s.run(0, "init", "--adopt", "--config", file)
		s.run(0, "run", "--once", "--config", file)
		if n := tokens() - paid; paid == 0 || n != 6 { // title 7, and four words
			t.Errorf("%d tokens were paid for again, of %d, want those of the row that changed", n, paid)
		}
		stdout, _ := s.run(0, "verify", "--deep", "50", "-o", "json")
		for _, v := range decoded[map[string][]verbs.Verified](t, stdout)["pipelines"] {
			if !v.OK || v.Rows != 50 || v.Missing != 0 || v.Stale != 0 {
				t.Errorf("%+v", v)
			}
		}
	})
}
