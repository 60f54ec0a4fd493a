package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/search"
)

// TestP5_VerifyJudgesTheOthers: the text of one row fails. verify names that row, checks all other rows and pipelines,
// and fails by its exit status. Searches find the others.
func TestP5_VerifyJudgesTheOthers(t *testing.T) {
	t.Parallel()
	s := newStage(t, 30)
	file := filepath.Join(t.TempDir(), "embedsidecar.yaml")
	const config = `version: 1
pipelines:
  - name: events
    table: public.events
    text: (payload::jsonb) ->> 't'
    into: {table: events_embedding}
  - name: plain
    table: public.docs
    columns: [title, body]
    into: {table: docs_embedding}
`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s.db.MustExec(`CREATE TABLE events (id int PRIMARY KEY, payload text); INSERT INTO events SELECT i, '{"t": "text ' || i || '"}' FROM generate_series(1, 20) AS i`)
	s.run(0, "run", "--once", "--config", file)
	s.run(0, "verify")
	s.db.MustExec(`UPDATE events SET payload = 'no json' WHERE id = 7`)
	stdout, stderr := s.run(exitFailed, "verify")
	s.has(stdout+stderr, "events, row 7: its text or filter fails: SQLSTATE 22P02", "verification failed: events")
	for _, flag := range []string{"--hybrid", "--quiet"} { // that row has the vector of its old text
		stdout, _ = s.run(0, "search", "events", "text 3", "-k", "20", flag, "-o", "json")
		if hits := decoded[[]search.Hit](t, stdout); len(hits) < 19 {
			t.Errorf("search %s finds %d rows beside the one whose text fails", flag, len(hits))
		}
	}
	stdout, _ = s.run(exitFailed, "verify", "-o", "json")
	type found struct {
		Pipeline      string
		OK            bool
		Rows, Covered int64
		Refused       int64
	}
	got := decoded[struct{ Pipelines []found }](t, stdout).Pipelines
	want := []found{{"events", false, 20, 19, 1}, {"plain", true, 30, 30, 0}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("verify found %+v, want %+v", got, want)
	}
}
