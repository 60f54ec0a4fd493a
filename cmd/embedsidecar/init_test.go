package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/setup/estimate"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestInit_ShowsAndDoes(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	flags := []string{"--table", "docs", "--columns", "title,body", "--into-table", "docs_embedding"}
	stdout, stderr := s.run(0, append([]string{"init", "--dry-run"}, flags...)...)
	s.has(stderr, "would make schema embedsidecar", `would make embedding table "public"."docs_embedding"`)
	s.has(stderr, "public.docs: about 3 rows, 3 texts to embed, ", " tokens, ", " on disk")
	if stdout != "" {
		t.Errorf("output %q", stdout)
	}
	file := filepath.Join(t.TempDir(), "priced.yaml")
	if err := os.WriteFile(file, []byte("models: [{name: fake, plugin: fake, price: 1000000}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"init", "--dry-run", "-o", "json", "--config", file, "--model", "fake"}
	stdout, _ = s.run(0, append(args, flags...)...)
	if got := decoded[struct {
		Estimates []estimate.Estimate `json:"estimates"`
	}](t, stdout).Estimates; len(got) != 1 || got[0].Price == nil || int64(*got[0].Price) != got[0].Tokens ||
		got[0].Seconds != nil {
		t.Errorf("estimated with a price: %s", stdout)
	}
	stdout, _ = s.run(0, append([]string{"init", "--show-sql"}, flags...)...)
	s.has(stdout, `CREATE TABLE "public"."docs_embedding" (`, "SELECT pg_create_logical_replication_slot('"+s.slot+
		"', 'pgoutput');\n")
	if testenv.Value[bool](s.db, "SELECT to_regclass('docs_embedding') IS NOT NULL OR to_regnamespace('embedsidecar') IS NOT NULL") {
		t.Error("something was made")
	}
	// Of several concurrent calls one makes everything, and the others find it made.
	var daemons []*daemon
	for range 3 {
		daemons = append(daemons, s.start(append([]string{"--once"}, flags...)...))
	}
	for _, d := range daemons {
		d.ends(0)
	}
	stdout, _ = s.run(0, append([]string{"init", "-o", "json"}, flags...)...)
	if got := decoded[map[string]any](t, stdout); len(got["steps"].([]any)) != 0 {
		t.Errorf("made again: %s", stdout)
	}

	// Another pipeline by table flags alone gets a name of its own, and the first is unchanged.
	_, stderr = s.run(0, "init", "--pipeline", "docs: title -> embedding")
	s.has(stderr, `made pipeline "public.docs:embedding"`, `pipeline "public.docs" is set up but not configured`)
	_, stderr = s.run(0, "run", "--once", "--pipeline", "docs: title -> embedding")
	s.has(stderr, `pipeline "public.docs" is set up but not configured: embedsidecar uninstall public.docs removes it`)
	s.run(0, "verify", "--deep", "5")
	stdout, _ = s.run(0, "search", "public.docs", "title 2\n\nbody 2", "-k", "1", "-o", "json")
	s.has(stdout, `"key": "2"`)
	s.db.MustExec("DELETE FROM docs WHERE id = 2") // its vector is an orphan until the sweep
	stdout, _ = s.run(0, "search", "public.docs", "title 2\n\nbody 2", "-k", "50", "-o", "json")
	if hits := decoded[[]search.Hit](t, stdout); len(hits) != 2 {
		t.Errorf("found %+v", hits)
	}
	stdout, _ = s.run(0, "uninstall", "public.docs:embedding", "--drop-embeddings", "--yes")
	s.has(stdout, "DELETE FROM embedsidecar.pipeline WHERE name = 'public.docs:embedding';")
	stdout, _ = s.run(0, "status", "-o", "csv")
	if strings.Contains(stdout, "public.docs:embedding") {
		t.Error(stdout)
	}
}

// TestUninstall_TakesAwayWhatIsNamedAlone: other commands accept docs for public.docs. Uninstall must not, because it
// could drop the vectors of the wrong pipeline after one of that name was removed.
func TestUninstall_TakesAwayWhatIsNamedAlone(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	s.run(0, "init", "--table", "docs", "--columns", "title", "--into-table", "docs_embedding")
	s.run(0, "pause", "docs")
	stdout, stderr := s.run(exitUsage, "uninstall", "docs", "--drop-embeddings", "--yes")
	s.has(stdout+stderr, `there is no pipeline "docs"`, "public.docs")
	if !testenv.Value[bool](s.db, "SELECT to_regclass('docs_embedding') IS NOT NULL") {
		t.Error("the vectors of public.docs are gone")
	}
	s.run(0, "uninstall", "public.docs", "--drop-embeddings", "--yes")
}
